"""A real Swarm of three hosts on this machine, a stack on it, and the load that goes through while things happen to both."""
