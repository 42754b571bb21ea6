"""Reports of `status` about the jobs of this machine: state of the node here, and the heartbeats in Redis."""

import os
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from redis import Redis

    from cluster_serving.client.redis_settings import RedisSettings
    from cluster_serving.node.job.directory import Job, NodeRecord

_FIRST_ANSWER_S = 2.0
_WITHOUT_FILES = ("redis://", "unix://")  # addresses that need no certificates
NOT_RUNNING = "not running"
UNKNOWN = "unknown"
NUMBERS = ("answered", "failed", "dead", "redelivered", "restarts", "recycled", "reconnects")
_SETTLED = ("state", "model", "backend", "engine", "precision", "threads", "budget", "batching", "batch_size")


class JobReports:
    """Reports of jobs. Keeps connections, and the address of a job's Redis until its node is started anew."""

    def __init__(self) -> None:
        self._settings: dict[str, tuple[NodeRecord, RedisSettings]] = {}
        self._clients: dict[RedisSettings, Redis] = {}

    def of(self, job: "Job") -> dict[str, Any]:
        """Return the known facts about a job on this machine. A value is None when the fact is not known."""
        from cluster_serving.node.job import redis_server
        from cluster_serving.node.job.redis_watch import watched

        record = job.read()
        is_running = job.running()
        process = job.supervisor() if is_running else None
        report: dict[str, Any] = {
            "job": job.name,
            "node": record.node if record else None,
            "state": "starting" if is_running else NOT_RUNNING,
            "pid": process.pid if process else None,
            "redis": record.redis if record else None,
            "log": str(job.log_path) if job.log_path.exists() else None,
        }
        if record is not None:
            report |= self._from_redis(record, is_running)
            if record.redis_directory is not None:  # the embedded Redis that the node uses or used last
                directory = Path(record.redis_directory)
                seen = watched(directory)
                pid = redis_server.owned(directory)
                report |= {"redis_pid": pid, "redis_restarts": seen.restarts, "redis_directory": str(directory)}
                if seen.restarts:
                    restarted = time.localtime(seen.last_restart_ms / 1000)
                    report["redis_restarted"] = time.strftime("%Y-%m-%d %H:%M:%S", restarted)
                if "problem" in report and pid is None:
                    why = (
                        f"the embedded Redis does not run: {seen.problem}" if seen.problem else "its Redis is shut down"
                    )
                    report["problem"] = why
        elif is_running:
            report["problem"] = "this machine has no record of the job's start"
        if is_running and "problem" in report:
            report["state"] = UNKNOWN
        return report

    def _from_redis(self, record: "NodeRecord", is_running: bool) -> dict[str, Any]:
        """Return the facts from Redis: the queue, and the heartbeat of a running node."""
        import msgspec
        import redis

        from cluster_serving.client.servers.process.exit_codes import Fault
        from cluster_serving.client.wire.heartbeat import Heartbeat

        try:
            found, beat = self._asked(record)
            if not is_running or beat is None:
                return found
            node = Heartbeat.decode(beat)
        except Fault as fault:
            return {"problem": str(fault)}
        except redis.AuthenticationError as error:
            cure = "Set redisPassword or CLUSTER_SERVING_REDIS_PASSWORD, as for the start."
            return {"problem": f"Redis at {record.redis}: {error} {cure}"}
        except (redis.RedisError, OSError) as error:
            return {"problem": f"Redis at {record.redis}: {error}"}
        except msgspec.MsgspecError as error:
            return {"problem": f"the heartbeat in Redis at {record.redis} cannot be read: {error}"}
        return found | {
            "version": node.version or None,
            "wire": node.wire,
            **{name: node.figures.get(name) for name in (*_SETTLED, "candidates", "shadow", *NUMBERS)},
            "workers": f"{node.workers_alive} of {node.workers}",
            "uptime_s": max(0, round(time.time() - node.started_ms / 1000)),
        }

    def _asked(self, record: "NodeRecord") -> tuple[dict[str, Any], bytes | None]:
        """Ask at the recorded address, and with the login in the configuration if one is needed: its imports take 0.1 s."""
        from redis.exceptions import AuthenticationError, NoPermissionError

        from cluster_serving.client.redis_settings import RedisSettings

        if record.redis.startswith(_WITHOUT_FILES):
            with suppress(AuthenticationError, NoPermissionError):
                return _asked(self._client(RedisSettings.parse(record.redis, timeout_s=_FIRST_ANSWER_S)), record)
        return _asked(self._client(self._configured(record)), record)

    def _configured(self, record: "NodeRecord") -> "RedisSettings":
        from cluster_serving.node.config.loading import load_config
        from cluster_serving.node.lifecycle.options import recorded_options

        known = self._settings.get(record.job)
        if known is None or known[0] != record:
            path = Path(record.config_path) if record.config_path else None
            config = load_config(path, os.environ, recorded_options(record).flags()).config
            known = self._settings[record.job] = record, config.redis_settings(_FIRST_ANSWER_S)
        return known[1]

    def _client(self, settings: "RedisSettings") -> "Redis":
        if settings not in self._clients:
            self._clients[settings] = settings.client()
        return self._clients[settings]


def _asked(client: "Redis", record: "NodeRecord") -> tuple[dict[str, Any], bytes | None]:
    """Return the facts about Redis and the queue of a job, and the heartbeat of the node of this machine.

    Raises:
        redis.RedisError: Redis cannot be reached, or refuses writes, or the user may not ask for the queue.
    """
    from cluster_serving.client.keys import GROUP, node_key
    from cluster_serving.client.protocol.resp import refuses_writes
    from cluster_serving.client.wire.heartbeat import release
    from cluster_serving.node.job.redis_kind import eviction
    from cluster_serving.node.job.releases import heartbeats, of_other_releases

    commands: Any  # a pipeline, whose methods are typed like those of a client
    with client.pipeline(transaction=False) as commands:
        commands.info("memory").info("server").xpending(record.job, GROUP).xlen(record.job)
        commands.get(node_key(record.job, record.node)).ping()
        memory, info, pending, backlog, beat, pong = commands.execute(raise_on_error=False)
    for reply in (backlog, beat, pong if refuses_writes(pong) else None):
        if isinstance(reply, Exception):
            raise reply
    server: str | None = None  # for a user without permission to ask
    warnings: list[str] = []
    if isinstance(memory, dict) and isinstance(info, dict):
        if lost := eviction(memory):
            warnings.append(f"Redis does not keep all that it accepts: {lost}")
        valkey = info.get("valkey_version")
        server = f"Valkey {valkey}" if valkey else f"Redis {info.get('redis_version')}"
    beats = heartbeats(client, record.job)
    if others := sorted({str(node) for node in of_other_releases(beats)}):
        warnings.append(f"nodes of the job are of version {', '.join(others)}, this command of {release()}")
    waiting = pending["pending"] if isinstance(pending, dict) else 0  # an error: no group yet
    found = {"redis_server": server, "backlog": backlog, "pending": waiting}
    if warnings:
        found["warning"] = "; ".join(warnings)
    return found | _load(beats), beat


def _load(beats: Sequence[bytes]) -> dict[str, Any]:
    """Return the load of all nodes of a job, and the part that limits the job. Empty: no node tells its load."""
    import msgspec

    from cluster_serving.client.servers.picture import JobPicture, limit
    from cluster_serving.client.wire.heartbeat import Heartbeat

    nodes: list[Heartbeat] = []
    for beat in beats:
        with suppress(msgspec.MsgspecError):  # of another release
            nodes.append(Heartbeat.decode(beat))
    picture = JobPicture.of(nodes)
    if picture is None:
        return {}
    return {"load": picture._asdict(), "limit": limit(picture)._asdict()}
