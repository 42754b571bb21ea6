"""Find the workers, threads and batch size that serve a model best on this machine, by measurements of real serving.

candidates ──► stand: a lane for each (workers, threads), batch sizes tried while the lane runs ◄── traffic: a separate client
    └──► search: scout, and a final in turns between the best so far and a close rival ──► report ──► store ──► start
"""
