"""The frontend's settings, and the files that they name."""
