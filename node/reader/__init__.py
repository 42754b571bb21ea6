"""Process 1: entries of the stream, decoded, into batches in slots; the leases that the node holds."""
