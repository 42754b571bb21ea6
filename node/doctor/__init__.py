"""Examination of the installation: facts of the machine, Redis, model, config and job, and the checks that judge the facts.

    machine_facts.py  ──► machine.py   memory.py  ┐
    processes.py                                  │
    redis_facts.py    ──► redis.py                ├──► examination.py ──► report.py (mutes.py) ──► commands/doctor.py
    job_facts.py      ──► model.py config.py job.py │
    entry points of frontend and swarm ───────────┘

Checks are pure functions of facts. Functions that read files take the root of the file system as a parameter. The examination
changes nothing on the machine and nothing in Redis.
"""
