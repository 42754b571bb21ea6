"""Client for asyncio: one file for each step, with the same names as in threads/."""
