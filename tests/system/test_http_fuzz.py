"""Some hundred malformed requests; `python -m fuzz.fuzz_http` sends as many as wanted."""

import asyncio
from pathlib import Path
from random import SystemRandom

from fuzz.fuzz_http import JOB, fuzz
from support.models import MODELS
from support.private_redis import PrivateRedis
from support.running_frontend import running_frontend
from support.running_node import running_node


def test_malformed_requests_are_refused_and_good_ones_still_answered(
    redis_server: PrivateRedis, tmp_path: Path
) -> None:
    seed = SystemRandom().randrange(1 << 30)
    print("seed", seed)
    model = str(MODELS / "affine.py")
    with (
        running_node(tmp_path / "node", redis_server, modelPath=model, jobName=JOB),
        running_frontend(tmp_path / "frontend", redis_server, jobName=JOB, requestTimeout=5) as frontend,
    ):
        outcome = asyncio.run(fuzz(frontend.url, 500, seed))

    assert outcome.wrong == []
    assert outcome.statuses["400"] > 250
