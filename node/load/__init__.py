"""Load on a job: sending processes, the windows of time that are measured, and the comparison of two results."""
