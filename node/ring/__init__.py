"""Shared memory of a lane: slots, slot states, doorbells, counters, and the conventions of the lane's three processes."""
