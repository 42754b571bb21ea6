"""Process 3: publishes each result once to Redis, and keeps dead letters."""
