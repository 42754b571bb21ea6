"""Everything that this machine keeps of a job: job directory, embedded Redis, detached processes."""
