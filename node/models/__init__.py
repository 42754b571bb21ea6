"""Models on disk: detection, loading and running, with a module for each backend."""
