"""Settings of the frontend, and the files named by the settings."""
