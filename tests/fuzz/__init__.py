"""Fuzzing of everything that decodes bytes from the wire: `make fuzz`."""
