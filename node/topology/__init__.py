"""Cores that the node may use, the properties of the cores, and the placement of each process on cores.

    affinity, control groups ──► budget.py ◄── machine.py (sysfs)
                                     │
                     placement.py: cores for each worker ──► child.py sets them ──► threads.py checks the result

Functions that read files take the root of the file system as a parameter, so that tests can describe any machine by a small tree.
"""
