"""Shows that `cluster-serving chaos` notices what it is there to notice: copies of the product with one fault each must not pass.

`python -m bench.mutants [--only NAME] [--seeds 3] [--seconds 60]`: a mutant is caught when a run fails; it gets so many seeds.
`--only none` runs the copy without a fault, which has to pass.

One mend has no mutant: numbers that hiredis would pack. The interpreter dies only if a signal comes in the microsecond in which
hiredis makes a text of a number, and few commands of a call have one. tests/integration/test_interrupts.py raises there.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from rich.console import Console
from rich.table import Table

from bench.variants import Patch, copy

_ROOT = Path(__file__).resolve().parents[1]
_MODEL = _ROOT / "tests" / "support" / "models" / "careless.py"
# A slot has room for the outputs of five rows, and the first batch has more.
_SETTINGS = "slotBytes: 64k\nmaxBatchDelayMs: 100\n"


MUTANTS: Final[Mapping[str, Sequence[Patch]]] = {
    # The node's promises.
    "no XACK fence in finish": [
        Patch(
            "node/writer/finish.lua",
            "if redis.call('XACK', KEYS[1], group, id) == 1 then",
            "if redis.call('XACK', KEYS[1], group, id) >= 0 then",
        )
    ],
    "slot freed before Redis answered": [
        Patch(
            "node/writer/writer.py",
            """\
                self._publish(slot)
                if self._ring.slots[slot].unfinished:
                    self._give_back(slot)
                    continue
                self._ring.move("writer", slot, State.FREE)
""",
            """\
                self._ring.move("writer", slot, State.FREE)
                self._publish(slot)
""",
        )
    ],
    "no lease renewal": [Patch("node/reader/reader.py", "self._leases.renew(list(self._held()))", "pass")],
    "batch retried as a whole": [Patch("node/ring/isolation.py", "limit=running // 2", "limit=running")],
    "group re-created at $": [
        Patch("node/reader/reader.py", 'keys.GROUP, "0", "MKSTREAM"', 'keys.GROUP, "$", "MKSTREAM"')
    ],
    "deadline ignored": [Patch("node/reader/decoding.py", "deadline=at.get(keys.DEADLINE, -1)", "deadline=-1")],
    "a model runs on the slot's own memory": [
        Patch(
            "node/models/python.py", "predict({name: array.copy() for name, array in batch.items()})", "predict(batch)"
        )
    ],
    "rows without room wait for their lease": [
        Patch("node/writer/writer.py", "if self._ring.slots[slot].unfinished:", "if False:")
    ],
    "names like the model's are bound by order": [
        Patch("client/wire/binding.py", "reason = _slip(names, known)", 'reason = ""')
    ],
    "deadlines by a clock that is set": [
        Patch("node/reader/redis_clock.py", "before_ms = time.monotonic()", "before_ms = time.time()"),
        Patch("node/reader/redis_clock.py", "after_ms = time.monotonic()", "after_ms = time.time()"),
        Patch("node/ring/ring.py", "return time.monotonic() * 1000 +", "return time.time() * 1000 +"),
    ],
    "a far id is a fault of the record": [
        Patch(
            "node/ring/deadline.py",
            "    return made_ms if made_ms < _LATEST_MS else _LATEST_MS",
            """\
    if made_ms > _LATEST_MS // 10:
        raise CodecError("the record's deadline is beyond all time")
    return made_ms""",
        )
    ],
    # The client's.
    "results are taken by the page": [
        Patch(
            "client/threads/output_queue.py",
            """\
                    for found in self._read(names[start : start + READ_AT_ONCE]):
                        for result in self._take([found]):
""",
            """\
                    for page in [self._read(names[start : start + READ_AT_ONCE])]:
                        for result in self._take(page):
""",
        )
    ],
    "a reply stream does not outlive a pause": [
        Patch(
            "client/protocol/reply_stream.py",
            "self._life_s = max(self._life_s, LIFE_S + min(pause_s, _LONGEST_PAUSE_S))",
            "self._life_s = max(self._life_s, LIFE_S)",
        )
    ],
    "a new master's replies are read behind the old one's": [
        Patch(
            "client/protocol/reply_stream.py",
            """\
        self._renewed_s = -math.inf
        self._last = b"0-0"
""",
            "        self._renewed_s = -math.inf\n",
        )
    ],
    "a call that a failover unblocks is refused": [
        Patch("client/protocol/resp.py", "|BUSY|UNBLOCKED|CLUSTERDOWN|", "|BUSY|CLUSTERDOWN|")
    ],
    "parent and child of a fork share a connection": [
        Patch("client/forks.py", "        forkable.after_fork()\n", "        pass\n")
    ],
    "an interrupt leaves a reply behind": [
        Patch(
            "client/threads/link.py",
            "if now is None or now.closed or now.due == _UNKNOWN:",
            "if now is None or now.closed:",
        ),
        Patch("client/threads/link.py", "return _UNKNOWN if now.closed else now.due", "return 0"),
        Patch("client/threads/link.py", "if now is None or now.due < count:", "if now is None:"),
    ],
}


class Run(NamedTuple):
    """One run of chaos: whether it passed, and what it noticed first."""

    passed: bool
    noticed: str
    seconds: float


def main() -> None:
    """Run every mutant until it is caught; exit code 1 if one is not."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--only", choices=["none", *MUTANTS], help="this mutant alone")
    parser.add_argument("--seeds", type=int, default=3, help="seeds that each one gets")
    parser.add_argument("--first-seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=60.0, help="of faults, in each run")
    options = parser.parse_args()
    chosen = [options.only] if options.only else list(MUTANTS)
    table = Table("mutant", "caught", "seeds", "seconds", "noticed first", title_justify="left")
    missed = 0
    for name in chosen:
        runs = hunt(name, range(options.first_seed, options.first_seed + options.seeds), options.seconds)
        caught = not runs[-1].passed
        missed += caught == (name == "none")
        table.add_row(
            name, "yes" if caught else "no", str(len(runs)), f"{sum(r.seconds for r in runs):.0f}", runs[-1].noticed
        )
    Console().print(table)
    sys.exit(1 if missed else 0)


def hunt(name: str, seeds: range, seconds: float) -> list[Run]:
    """Run a mutant with one seed after the other until a run fails."""
    with tempfile.TemporaryDirectory(prefix="cluster-serving-mutant-") as directory:
        place = Path(directory)
        environment = copy(place, MUTANTS.get(name, []))
        config = place / "config.yaml"
        config.write_text(f"modelPath: {_MODEL}\njobName: mutant\n{_SETTINGS}", encoding="utf-8")
        runs: list[Run] = []
        for seed in seeds:
            runs.append(run(place, environment, config, seed, seconds))
            print(f"{name}, seed {seed}: {'passed' if runs[-1].passed else runs[-1].noticed}", flush=True)
            if not runs[-1].passed:
                break
        return runs


def run(place: Path, environment: dict[str, str], config: Path, seed: int, seconds: float) -> Run:
    """Run chaos on the copy.

    Raises:
        SystemExit: it could not begin.
    """
    command = [sys.executable, "-P", "-m", "cluster_serving.node.cli", "chaos", "--json", "-c", str(config)]
    command += ["--seed", str(seed), "--seconds", str(seconds)]
    begun_s = time.monotonic()
    whole = os.environ | environment | {"TMPDIR": str(place)}
    ended = subprocess.run(command, env=whole, capture_output=True, text=True, check=False)
    took_s = time.monotonic() - begun_s
    if not ended.stdout:
        lines = ended.stderr.strip().splitlines()
        if ended.returncode != 1 or "Traceback" in ended.stderr:
            sys.exit(f"chaos ended with {ended.returncode}:\n{ended.stderr}")
        return Run(False, lines[-1], took_s)
    report = json.loads(ended.stdout)
    failed = [f"{check['check']}: {check['failed']}, {check['first']}" for check in report["checks"] if check["failed"]]
    return Run(bool(report["passed"]), failed[0] if failed else "", took_s)


if __name__ == "__main__":
    main()
