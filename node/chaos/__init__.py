"""`cluster-serving chaos`: the user's model under load, while everything dies that can die.

    plan (schedule.py) ──► faults.py ──► two nodes (nodes.py) and a Redis (private_redis.py) of the run's own
    records (records.py) ──► traffic.py ──► Redis ──► nodes, with poison (poison.py) beside the model ──► observer.py
                                └───────────────► history.py ◄──────────────────────────────────────────┘
                                                     └──► verdicts ──► report.py

`run.py` puts them together. What is decided from the seed (schedule, records) and what is judged (history) is pure; the rest
only does and notes down.
"""
