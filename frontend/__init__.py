"""HTTP for clients of the queue."""
