"""The embedded Redis: started by `start` if no Redis runs on this machine, stopped by `shutdown`.

The server has a session and a directory of its own, keeps an append-only file there, and listens on 127.0.0.1 only. With full
memory (setting `redisMaxMemory`) the server refuses writes, and never throws records away. While a node uses the server,
`redis_watch.py` starts the server again after its end.
"""

import fcntl
import os
import re
import shlex
import socket
import time
from collections.abc import Generator
from contextlib import contextmanager
from enum import Enum
from pathlib import Path
from typing import Any

import psutil
import redis

from cluster_serving.client.redis_settings import RedisSettings
from cluster_serving.client.servers.process.whole_file import whole_file
from cluster_serving.node.job import detached
from cluster_serving.node.job.directory import all_jobs, state_home
from cluster_serving.node.job.redis_errors import RedisUnavailable
from cluster_serving.node.job.redis_program import ServerProgram, find_server

_ANSWER_S = 5.0  # as long as a busy machine may hold a Redis up
_NO_ANSWER_S = 10.0
_LOADING_S = 600.0  # loading a large append-only file takes long
_STOP_S = 30.0
_CONF_NAME = "redis.conf"
_CHECK = "redis-check-aof"
_ANSWER = re.compile(rb"\+PONG|-[A-Z]+ ")  # to PING: every Redis in trouble has an error of its own
_BROKEN_FILE = re.compile(r"Bad file format reading the append only file(?: (\S+))?: make a backup")

# By default, Redis rewrites the log at 64 MB, and so every second under full load. The log holds commands alone, without an RDB
# preamble: Redis 7 and newer and Valkey all read commands. An RDB of Valkey 9 is read by Valkey 9 alone, and not even by
# valkey-check-aof 9.1.2.
_CONF = """\
# Written by cluster-serving at every start of this Redis.
bind 127.0.0.1
port {port}
daemonize no
dir "{directory}"
pidfile "{directory}/redis.pid"
logfile "{directory}/redis.log"
appendonly yes
appendfsync everysec
aof-use-rdb-preamble no
save ""
auto-aof-rewrite-min-size 512mb
maxmemory {max_memory_bytes}
maxmemory-policy noeviction
"""


class Listener(Enum):
    """Kind of program that listens on a port."""

    NOBODY = "nobody"
    REDIS = "redis"
    SILENT = "silent"
    OTHER = "other"


def listener(port: int) -> Listener:
    """Return the kind of program that listens on a port of 127.0.0.1."""
    try:
        with socket.create_connection(("127.0.0.1", port), _ANSWER_S) as connection:
            connection.settimeout(_ANSWER_S)
            connection.sendall(b"PING\r\n")
            answer = connection.recv(64)
    except ConnectionRefusedError:
        return Listener.NOBODY
    except TimeoutError:
        return Listener.SILENT
    except OSError:
        return Listener.OTHER
    return Listener.REDIS if _ANSWER.match(answer) else Listener.OTHER


@contextmanager
def only_one(port: int) -> Generator[None]:
    """Wait for the machine-wide lock on a port, and hold the lock for a block that looks for a server and starts one."""
    home = state_home(os.environ)
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor = os.open(home / f".redis-{port}.lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def start(
    directory: Path, port: int, max_memory_bytes: int, server: ServerProgram | None = None, password: str | None = None
) -> int:
    """Start a Redis and wait until it answers.

    Args:
        directory: place of the data, the pid file and the log. Created if missing.
        port: port on 127.0.0.1.
        max_memory_bytes: limit of the memory. 0: no limit.
        server: program to start. None: the program is searched for.
        password: password for clients. None: no password.

    Returns:
        The process id of the server.

    Raises:
        RedisUnavailable: the port is taken, a server with this directory runs, or the server ended or did not answer in time.
            The last message has the last log line.
    """
    if listener(port) is not Listener.NOBODY:
        raise RedisUnavailable(f"port {port} is in use by another process; free it, or choose another port in redisUrl")
    if owned(directory) is not None:  # two servers on the same files would delete each other's data
        raise RedisUnavailable(f"a Redis with the data in {directory} runs already, on port {port_of(directory)}")
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    directory = directory.resolve()
    # A file instead of arguments, because the quoting of arguments differs between versions of Redis.
    escaped = str(directory).replace("\\", "\\\\").replace('"', '\\"')
    text = _CONF.format(port=port, directory=escaped, max_memory_bytes=max_memory_bytes)
    if password:
        # Any password can be written with each byte in hexadecimal.
        in_hex = "".join(f"\\x{byte:02x}" for byte in password.encode())
        text += f'requirepass "{in_hex}"\n'
    with whole_file(directory / _CONF_NAME, 0o600) as stream:
        stream.write(text.encode())
    return _launch(directory, server or find_server(os.environ, directory), port, password)


def restart(directory: Path, password: str | None = None) -> int:
    """Start a Redis that has ended, with the same data and settings, and wait until it answers.

    Args:
        directory: directory of a Redis that `start` has started before.
        password: password to ask the server with.

    Returns:
        The process id of the server.

    Raises:
        RedisUnavailable: as for `start`, or no Redis was ever started in this directory.
    """
    port = port_of(directory)
    if port is None:
        raise RedisUnavailable(f"no Redis was started in {directory}")
    return _launch(directory.resolve(), find_server(os.environ, directory), port, password)


def _launch(directory: Path, server: ServerProgram, port: int, password: str | None) -> int:
    # The repair tool for the append-only file is the server itself, called by the tool's name.
    draft = directory / f".{_CHECK}.{os.getpid()}"
    draft.unlink(missing_ok=True)
    draft.symlink_to(server.path)
    draft.replace(directory / _CHECK)
    log = directory / "redis.log"
    log.touch(mode=0o600)
    log_start = log.stat().st_size
    umask = os.umask(0o077)  # the data is for its owner only
    try:
        pid = detached.spawn([str(server.path), str(directory / _CONF_NAME)], log, os.environ)
    except OSError as error:
        raise RedisUnavailable(f"{server.path} cannot be started: {error.strerror}") from error
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


def _wait_until_ready(pid: int, settings: RedisSettings, log: Path, log_start: int) -> None:
    started = time.monotonic()
    deadline = started + _NO_ANSWER_S
    with settings.client() as client:
        while time.monotonic() < deadline:
            if detached.ended(pid, 0.02):
                raise RedisUnavailable(_why_ended(log, log_start))
            try:
                client.ping()  # unlike INFO, PING is refused while the server loads
                info: Any = client.info("server")
            except redis.BusyLoadingError:
                deadline = started + _LOADING_S
            except redis.AuthenticationError:
                return  # the server answers, but still has the password of its first start
            except redis.RedisError:
                continue
            else:
                if info["process_id"] == pid:
                    return
    raise RedisUnavailable(
        f"redis-server did not answer on port {settings.port}; its log ends with: {_last_line(log, log_start)}"
    )


def _why_ended(log: Path, log_start: int) -> str:
    last = _last_line(log, log_start)
    broken = _BROKEN_FILE.search(last)
    if broken is None:
        return f"redis-server ended at once; its log ends with: {last}"
    home, name = log.parent, broken[1] or "appendonly.aof"
    parts = home / "appendonlydir"
    file = parts / name if (parts / name).exists() else home / name
    checked = parts / "appendonly.aof.manifest" if file.parent == parts else file
    fix = shlex.join([str(home / _CHECK), "--fix", str(checked)])
    return (
        f"the append-only file {file} of the embedded Redis is damaged, so that its records cannot be read; make a copy of "
        f"{home}, then cut off what comes after the damage with: {fix}"
    )


def owned(directory: Path) -> int | None:
    """Return the process id of the Redis that was started in this directory. None: the server does not run."""
    try:
        pid = int((directory / "redis.pid").read_text(encoding="ascii"))
        process = psutil.Process(pid)
        # The working directory of Redis is its data directory. A later process with a reused pid has a different directory.
        mine = process.name().startswith(("redis", "valkey")) and Path(process.cwd()) == directory.resolve()
        return pid if mine and process.status() != psutil.STATUS_ZOMBIE else None
    except (OSError, ValueError, psutil.Error):
        return None


def left_pid_file(directory: Path) -> bool:
    """Return whether the Redis of a directory has ended without removing its pid file: killed, and not told to end."""
    return (directory / "redis.pid").exists()


def port_of(directory: Path) -> int | None:
    """Return the port of the last Redis in this directory. None: no Redis was started there."""
    try:
        lines = (directory / _CONF_NAME).read_text(encoding="utf-8").splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) for line in lines if line.startswith("port ")), None)


def home_of(port: int) -> Path | None:
    """Find the directory of the embedded Redis that runs on a port. None: no job of this machine has started the server."""
    homes = (job.redis_directory for job in all_jobs())
    return next((home for home in homes if port_of(home) == port and owned(home) is not None), None)


def holds_data(directory: Path) -> bool:
    """Return whether a Redis has left an append-only file in this directory. Newer servers use a subdirectory."""
    return (directory / "appendonly.aof").exists() or (directory / "appendonlydir").exists()


def stop(directory: Path) -> bool:
    """Stop the Redis that was started in this directory. The server writes its append-only file to disk first.

    Returns:
        Whether a server ran.

    Raises:
        RedisUnavailable: the server does not end.
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


def _last_line(log: Path, start: int) -> str:
    with log.open("rb") as stream:
        stream.seek(start)
        lines = [line.strip() for line in stream.read()[-4096:].decode(errors="replace").splitlines() if line.strip()]
    return lines[-1] if lines else "nothing"
