"""Commands to Redis and the meaning of its answers, for threads and asyncio alike. No I/O."""
