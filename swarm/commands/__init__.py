"""Commands of `cluster-serving swarm`, one per file."""
