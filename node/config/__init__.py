"""Settings of a node: reading and checking, and the values that `auto` takes on this machine."""
