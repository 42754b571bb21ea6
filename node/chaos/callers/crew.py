"""Crew of a run: starts the callers, ends them, and reads their tallies."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec

from cluster_serving.client.servers.process.parent import die_with_parent
from cluster_serving.node.chaos.callers.kit import Kit
from cluster_serving.node.chaos.callers.tally import Tally

CALLERS: Final = ("threads", "forks", "pauses", "breaks", "interrupts", "cancels")
"""Callers beside the load."""
HARVEST: Final = "harvest"


class Crew:
    """Callers with one kit, all ready.

    Args:
        directory: place of the kit, of the logs and of the whole tallies.
        environment: environment of the processes.
        kit: kit of all callers.
        names: names of the callers.
    """

    def __init__(self, directory: Path, environment: Mapping[str, str], kit: Kit, names: Sequence[str]) -> None:
        self._directory = directory
        path = directory / "callers.kit"
        path.write_bytes(kit.encode())
        end, self._end = os.pipe()  # the callers read the end of one input
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        for name in names:
            with self._log(name).open("wb") as log:
                self._processes[name] = subprocess.Popen(
                    [sys.executable, "-P", "-m", "cluster_serving.node.chaos.callers.program", name, str(path)],
                    bufsize=0,
                    stdin=end,
                    stdout=subprocess.PIPE,
                    stderr=log,
                    env=dict(environment),
                    start_new_session=True,
                    preexec_fn=die_with_parent,
                )
        os.close(end)
        for process in self._processes.values():
            if process.stdout is not None:
                process.stdout.readline()  # the caller is ready, or has ended

    def _log(self, name: str) -> Path:
        return self._directory / f"caller-{name}.log"

    def tell_the_end(self) -> None:
        """Let each caller end its round, and make a last one."""
        os.close(self._end)

    def tallies(self, timeout_s: float) -> dict[str, Tally]:
        """Wait for the end of all callers, and return their tallies. A caller that hangs or crashes has failed."""
        deadline_s = time.monotonic() + timeout_s
        found: dict[str, Tally] = {}
        for name, process in self._processes.items():
            ending = ""
            try:
                told, _ = process.communicate(timeout=max(0.0, deadline_s - time.monotonic()))
            except subprocess.TimeoutExpired:
                ending = "the program hangs: the log has its stacks"
                process.send_signal(signal.SIGABRT)
                told, _ = process.communicate()
            (self._directory / f"caller-{name}.json").write_bytes(told)
            if process.returncode == 0:
                found[name] = msgspec.json.decode(told, type=Tally)
                continue
            lines = self._log(name).read_text(encoding="utf-8", errors="replace").splitlines()
            ending = ending or f"the program ended with {process.returncode}: {(lines or [''])[-1]}"
            found[name] = Tally(failed=[ending])
        return found
