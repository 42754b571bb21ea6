"""Models that can be called, the limits of the calls, and the way of records to Redis and back."""
