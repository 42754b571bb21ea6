"""Common parts of all server processes: exit codes, logging, and redaction of secrets."""
