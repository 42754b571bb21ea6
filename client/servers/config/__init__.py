"""Settings of a server: flag, then environment, then file, then default. Each server defines its own settings."""
