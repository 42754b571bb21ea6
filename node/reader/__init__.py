"""Process 1: decodes stream entries into batches in slots, and renews the leases that the node holds."""
