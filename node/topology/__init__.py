"""Which cores the node may use, what they are like, and which process runs on which.

    affinity, control groups ──► budget.py ◄── machine.py (sysfs)
                                     │
                     placement.py: cores for each worker ──► child.py sets them ──► threads.py looks whether it held

Whatever reads files takes the root of the file system as a parameter, so that every machine can be tested from a small tree.
"""
