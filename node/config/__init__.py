"""All that can be set, how it is read, and what auto comes to on this machine."""
