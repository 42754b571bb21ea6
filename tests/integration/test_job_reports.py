"""Report of `status` about a job whose Redis is in trouble."""

from pathlib import Path

import pytest

from cluster_serving.node.commands.job_reports import JobReports
from cluster_serving.node.job.directory import Job, NodeRecord
from support.failed_snapshot import failed_snapshot
from support.private_redis import PrivateRedis


@pytest.mark.usefixtures("patient")
def test_a_redis_that_refuses_writes_is_told(
    own_redis: PrivateRedis, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There is no heartbeat then, as while a node starts."""
    monkeypatch.setenv("CLUSTER_SERVING_HOME", str(tmp_path / "home"))
    job = Job.of("a")
    flags = [f"--redis-url={own_redis.url}"]
    job.record(NodeRecord("a", "n-1", 1, None, flags, f"redis://127.0.0.1:{own_redis.port}/0", None, 10, 1))

    with job.acquire():
        before = JobReports().of(job)
        with failed_snapshot(own_redis):
            found = JobReports().of(job)

    assert (before["state"], before.get("problem")) == ("starting", None)
    assert found["state"] == "unknown"
    assert "MISCONF" in found["problem"]
