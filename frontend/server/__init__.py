"""Processes of the frontend: ports, start, restart, drain."""
