"""The commands of `cluster-serving swarm`, one a file."""
