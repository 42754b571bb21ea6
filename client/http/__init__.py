"""Client of a frontend."""
