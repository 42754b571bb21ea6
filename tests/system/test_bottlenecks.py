"""The limit of a job that is limited for real is named. `python -m bench.bottlenecks` makes all eight, twenty times."""

from functools import partial
from pathlib import Path

import pytest
from bench.bottlenecks import VOICES
from bench.scenes import JOB, SCENES
from bench.stage import Stage

from cluster_serving.client.servers.picture import JobPicture, limit
from cluster_serving.client.wire.heartbeat import Heartbeat
from support.private_redis import PrivateRedis
from support.wait import wait_until

pytestmark = [pytest.mark.redis]
_ON_ONE_NODE = ("slow-client", "lock-step", "memory", "slow-model")


def test_bottlenecks_are_named_as_they_come_and_go(own_redis: PrivateRedis, tmp_path: Path) -> None:
    place, scenes = Stage(tmp_path, own_redis.port), [scene for scene in SCENES if scene.name in _ON_ONE_NODE]

    def is_named(code: str) -> bool:
        picture = JobPicture.of([Heartbeat.decode(place.beat(JOB))])
        return picture is not None and limit(picture).code == code

    def is_told(code: str) -> bool:
        return VOICES["status"](place) == code

    with scenes[0].node(place):
        for scene in scenes:
            with scene.trouble(place), scene.load(place.port):
                wait_until(partial(is_named, scene.code), f"{scene.name} is named {scene.code}")
                if scene is scenes[-1]:
                    wait_until(partial(is_told, scene.code), f"status names {scene.code}")
