"""The frontend's processes: ports, start, restart, drain."""
