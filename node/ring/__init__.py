"""Shared memory of a lane: slots, their states, doorbells, counters, and all that its three processes agree on."""
