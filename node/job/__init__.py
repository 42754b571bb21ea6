"""All that this machine keeps of a job: its directory, its own Redis, detached processes."""
