"""One file for each API, and the gate of every request."""
