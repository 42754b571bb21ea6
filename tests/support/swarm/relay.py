"""Runs in a container on the stack's network: what connects to it is connected to Redis, where no port leads from outside."""

import asyncio
from asyncio import StreamReader, StreamWriter

PORT = 6379
_CHUNK = 1 << 16


async def serve() -> None:
    """Relay until killed."""
    async with await asyncio.start_server(_relay, "0.0.0.0", PORT) as server:  # noqa: S104 - in a container of its own
        await server.serve_forever()


async def _relay(reader: StreamReader, writer: StreamWriter) -> None:
    try:
        to_reader, to_writer = await asyncio.open_connection("redis", PORT)
    except OSError:
        writer.close()
        return
    await asyncio.gather(_copy(reader, to_writer), _copy(to_reader, writer))


async def _copy(reader: StreamReader, writer: StreamWriter) -> None:
    try:
        while data := await reader.read(_CHUNK):
            writer.write(data)
            await writer.drain()
    except OSError:
        pass
    finally:
        writer.close()


if __name__ == "__main__":
    asyncio.run(serve())
