"""Checks of frontends for `doctor`: frontends that run on this machine, and the section `frontend:` of a config file."""

import ipaddress
import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import click
import psutil

from cluster_serving.client.redis_settings import RedisSettings
from cluster_serving.client.servers.checks import Case, Checks, Finding, Verdict
from cluster_serving.client.servers.config.file_here import DEFAULT_CONFIG
from cluster_serving.client.servers.config.spellings import fold
from cluster_serving.frontend.config.loading import ConfigError, check_files, load_frontend_config
from cluster_serving.frontend.config.options import settings_options
from cluster_serving.frontend.config.settings import FrontendConfig

FRONTEND = Checks["FrontendFacts"]("Frontend")

_PROCESS = ["-m", "cluster_serving.frontend.server.process"]
_COMMANDS = ("frontend", "cluster-serving-http")  # words before the options, as in `python -m cluster_serving.frontend`


class FrontendFacts(NamedTuple):
    """Settings of a frontend, or None with an `error`."""

    config: FrontendConfig | None
    error: str = ""


@FRONTEND("CS-FRONTEND-CONFIG")
def wrong(facts: FrontendFacts) -> Verdict:
    """Judge whether the settings can be read."""
    if not facts.error:
        return Verdict("ok", "the settings can be read")
    return Verdict("fail", facts.error, "mend the line", "cluster-serving frontend --print-config")


@FRONTEND("CS-FRONTEND-OPEN")
def is_open(facts: FrontendFacts) -> Verdict:
    """Judge whether strangers may call."""
    if facts.config is None:
        return Verdict("skip", "the settings cannot be read")
    interface = facts.config.interface
    if facts.config.api_keys_file or _is_local(interface):
        return Verdict("ok", "API keys are needed" if facts.config.api_keys_file else f"listens on {interface} alone")
    port = f"port {facts.config.port}" if facts.config.port else "its port"  # 0: any free port
    return Verdict(
        "warn",
        f"listens on {interface} without API keys: everybody who reaches {port} can call every model",
        "set apiKeysFile to a file with a key a line, or interface to 127.0.0.1",
        "openssl rand -hex 24 > api_keys.txt",
        1,
        {"interface": interface, "port": facts.config.port},
    )


class FrontendExaminer:
    """Examiner of the frontends of this machine."""

    codes = FRONTEND.codes

    def examine(self, case: Case) -> list[Finding]:
        """Return the findings about each frontend that runs on the job's Redis, and about the settings in the config file."""
        running = [(subject, facts) for subject, facts in _running() if _is_on(facts, case.redis)]
        found = [finding for subject, facts in running for finding in FRONTEND.run(facts, subject)]
        if case.config_path is not None and _has_section(case.config_path):
            found += FRONTEND.run(_read(case.config_path, case.environ, {}, running=False), str(case.config_path))
        where = f" on {case.redis.describe()}" if case.redis else ""
        return found or FRONTEND.skip(
            "frontend", f"none runs here{where}, and the config file has no section frontend:"
        )


EXAMINER = FrontendExaminer()


def _is_on(facts: FrontendFacts, redis: RedisSettings | None) -> bool:
    """Return whether a frontend is on a Redis, or may be."""
    return facts.config is None or redis is None or facts.config.redis_settings().is_same(redis)


def _is_local(interface: str) -> bool:
    if interface == "localhost" or "/" in interface:
        return True
    try:
        return ipaddress.ip_address(interface).is_loopback
    except ValueError:
        return False


def _read(path: Path | None, environ: Mapping[str, str], flags: Mapping[str, object], running: bool) -> FrontendFacts:
    try:
        config = load_frontend_config(path, environ, flags).config
        if not running:
            check_files(config)
    except ConfigError as error:
        return FrontendFacts(None, str(error).partition("\n")[0])
    return FrontendFacts(config)


def _has_section(path: Path) -> bool:
    with suppress(OSError):
        return any(line.startswith("frontend:") for line in path.read_text(errors="replace").splitlines())
    return False


def _running() -> Iterator[tuple[str, FrontendFacts]]:
    """Yield each frontend of this user outside containers, with the settings of its command line, environment and config file."""
    supervisors: set[int] = set()
    for process in psutil.process_iter():
        with suppress(psutil.Error, OSError):
            if process.cmdline()[-2:] == _PROCESS and _is_readable(process):
                supervisors.add(process.ppid())
    for pid in sorted(supervisors):
        with suppress(psutil.Error, click.ClickException, OSError, StopIteration):
            supervisor = psutil.Process(pid)
            words = supervisor.cmdline()
            begin = next(number for number, word in enumerate(words, 1) if word.endswith(_COMMANDS))
            values = _options(words[begin:])
            path = Path(supervisor.cwd()) / str(values.pop("config_path", None) or DEFAULT_CONFIG)
            flags: dict[str, object] = {f"--{name.replace('_', '-')}": value for name, value in values.items()}
            facts = _read(path if path.exists() else None, supervisor.environ(), flags, running=True)
            yield f"frontend (pid {pid})", facts


def _is_readable(process: psutil.Process) -> bool:
    """Return whether this user may see the settings of a process, and finds the files that they name where the process does."""
    is_here = Path(f"/proc/{process.pid}/ns/pid").samefile("/proc/self/ns/pid")
    return is_here and os.geteuid() in (0, process.uids().effective)


def _options(words: list[str]) -> dict[str, object]:
    """Return the settings on a command line of `frontend`."""
    config = click.Option(["-c", "--config-path"])
    hidden = [click.Option(["--report-fd"]), click.Option(["--parent"])]
    settings = {"token_normalize_func": fold}
    command = click.Command("frontend", params=[config, *hidden, *settings_options()], context_settings=settings)
    values = dict(command.make_context("frontend", words, resilient_parsing=True).params)
    return {name: value for name, value in values.items() if name not in ("report_fd", "parent")}
