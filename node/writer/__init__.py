"""Process 3: results back to Redis, once each; dead letters."""
