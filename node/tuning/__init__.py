"""Finds out what serves a model best on this machine: by serving it.

candidates ──► stand: a lane for each (workers, threads), batch sizes tried while it runs ◄── traffic: a client of its own
    └──► search: scout, and a final in turns between the best so far and who comes near ──► report ──► store ──► start
"""
