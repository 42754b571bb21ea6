"""A web application that asks a job, without waiting in a thread: `uvicorn web_app:app`, then post images to `/digit`."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from fastapi import FastAPI, HTTPException, Request

from cluster_serving.client import AsyncInputQueue, ClusterServingError


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncGenerator[None]:
    """Keep one queue for all requests: it sends the records of requests that come together in one call."""
    async with AsyncInputQueue(name="digits") as queue:
        app.state.queue = queue
        yield


app = FastAPI(title="Digits", lifespan=lifespan)


@app.post("/digit")
async def digit(request: Request) -> dict[str, object]:
    """Return the digit in the image that is the body."""
    queue: AsyncInputQueue = request.app.state.queue
    try:
        ((number, probability, name),) = await queue.predict({"image": await request.body()}, timeout=2)
    except ClusterServingError as error:  # 400 no image, 429 no room, 503 no Redis, 504 not in time
        raise HTTPException(error.http_status, str(error)) from None
    return {"digit": number, "name": name, "probability": probability}
