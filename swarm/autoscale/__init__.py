"""Autoscaler of a stack: the number of nodes follows the load.

    Redis: arrivals, backlog, heartbeats ──► policy: nodes that are needed, and why ──► scaler: Docker socket

The policy is pure. The scaler is a service of its own with the socket of a manager, and can set the number of nodes, nothing else.
"""
