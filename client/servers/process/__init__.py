"""What every server process of ours has: exit codes, a log, and secrets that stay out of it."""
