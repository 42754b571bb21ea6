"""Records a second, and how long an answer takes at equal load, beside other model servers: three networks over HTTP.

Every server runs the same ONNX file (`bench/fitted.py`) in ONNX Runtime with the same settings, and is sent the same JPEG file
(ResNet-50, MobileNetV2) or the same text of 64 tokens (a transformer encoder) by the same client. Ours is measured in OpenVINO
too: in float32, in bfloat16, and as `precision: auto` finds it, which may be INT8 where 99 % agreement is proven on records.
First each is tried in some arrangements of the machine (copies of the model x threads x records in one run), and keeps the one in
which it is fastest. Then, in each round, every server is started, loaded by closed loops over 8 and over 32 connections, and by an
open loop with as many records a second for all: 0.7 of what the slowest of the others can do.
"""

import argparse
import signal
import tempfile
from collections.abc import Sequence
from pathlib import Path

from bench import report
from bench.arrivals import ARRIVALS
from bench.fitted import NETWORKS, save_fitted
from bench.peers.contest import Contest
from bench.peers.environments import ENVIRONMENTS
from bench.peers.servers import KINDS, Arrangement
from bench.peers.table import show

_ARRANGEMENTS = "2x1x8 1x2x8"
_SHARE = 0.7
_RECORDS = 1200
_OPEN_LOOP = 2.5
"""It takes so many times as long as a closed one: a hundredth of its answers is to be more than one."""


def main() -> None:
    """Install, or measure, print a table, and write the figures where they are wanted."""
    options = _options()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # the servers are stopped on the way out
    others = [ENVIRONMENTS[name] for name in options.servers if name in ENVIRONMENTS]
    if options.install:
        for each in others:
            print(f"{each.name}: {each.install() or each.version()}")
        return
    out = {each.name: why for each in others if (why := each.missing())}
    versions = {each.name: each.version() for each in others if each.name not in out}
    servers = [name for name in options.servers if name not in out]
    with tempfile.TemporaryDirectory(prefix="cluster-serving-bench-") as directory:
        contests = [_held(model, Path(directory), servers, options) for model in options.models]
    for contest in contests:
        out |= {f"{name} with {contest.model}": why for name, why in contest.out.items()}
    show(contests, versions, out)
    loads_per_s = {contest.model: contest.load_per_s for contest in contests}
    report.write(options.json, _joined(contests), versions=versions, out=out, open_loop_per_s=loads_per_s)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.peers", description=report.first_line(__doc__))
    parser.add_argument("--install", action="store_true", help="make the environments of the other servers, and end")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there")
    parser.add_argument("--models", nargs="+", choices=NETWORKS, default=list(NETWORKS))
    parser.add_argument("--servers", nargs="+", choices=KINDS, default=list(KINDS))
    parser.add_argument(
        "--arrangements",
        nargs="+",
        type=Arrangement.parse,
        default=[Arrangement.parse(each) for each in _ARRANGEMENTS.split()],
        metavar="CxTxN",
        help=f"copies x threads x records in one run, to choose from; {_ARRANGEMENTS}",
    )
    parser.add_argument(
        "--seconds", type=float, default=5, help=f"of a closed loop; an open one takes {_OPEN_LOOP:g} times as long"
    )
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--arrivals", choices=ARRIVALS, default="fixed", help="in the open loop")
    parser.add_argument(
        "--load", type=float, help="records/s of the open loop, as an earlier run had it; with one model"
    )
    options = parser.parse_args()
    if options.load and len(options.models) > 1:
        parser.error("--load is for one of the --models")
    return options


def _held(model: str, directory: Path, servers: Sequence[str], options: argparse.Namespace) -> Contest:
    """The contest on one model."""
    save_fitted(model, directory, _RECORDS)
    contest = Contest(model, directory / f"{model}.onnx", list(servers))
    contest.choose(options.arrangements, options.seconds)
    contest.load_per_s = options.load or _SHARE * contest.slowest_per_s()
    for number in range(options.rounds):
        due_s = ARRIVALS[options.arrivals](contest.load_per_s, _OPEN_LOOP * options.seconds, number)
        contest.take_turns(options.seconds, due_s)
    return contest


def _joined(contests: Sequence[Contest]) -> list[report.Figures]:
    """The figures of each round, of all models, where every round has them."""
    rounds: list[report.Figures] = [{} for _ in contests[0].rounds]
    for contest in contests:
        for whole, figures in zip(rounds, contest.rounds, strict=True):
            whole |= figures
    return [{name: value for name, value in each.items() if all(name in other for other in rounds)} for each in rounds]


if __name__ == "__main__":
    main()
