"""The client of a frontend."""
