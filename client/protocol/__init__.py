"""Commands to Redis and the meaning of the replies, for threads and asyncio alike. No I/O."""
