"""Client for threads: one file for each step, with the same names as in aio/."""
