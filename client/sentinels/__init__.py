"""Redis Sentinels: their addresses, and connections to the master that they name."""
