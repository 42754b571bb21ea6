"""`cluster-serving chaos`: the user's model under load, while the processes of its nodes and Redis die.

    plan (schedule.py) ──► faults.py ──► two nodes (nodes.py) and a Redis (private_redis.py) of the run's own
    records (records.py) ──► traffic.py ──► Redis ──► nodes, with poison (poison.py) beside the model ──► observer.py
                                │                  ▲                                                     │
    programs (callers/) ────────┼──► queues ───────┘                                                     │
                                └───────────────► history.py ◄──────────────────────────────────────────┘
                                                     └──► verdicts ──► report.py

`run.py` connects the parts. The plan from the seed (schedule, records) and the verdicts (history) are pure code. All other files
only act, and write into the history.
"""
