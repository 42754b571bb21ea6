"""A model on disk: found, loaded, run; one backend a file."""
