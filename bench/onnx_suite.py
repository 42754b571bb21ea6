"""ONNX's own backend test suite, served: every case that ONNX Runtime passes by itself must be answered with the same outputs.

python -m bench.onnx_suite                  every case through the code of reader, worker and writer, in this process
python -m bench.onnx_suite --nodes          every case through a node of its own, hours
python -m bench.onnx_suite --one-in 20      a sample
"""

import argparse
import sys
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from bench.in_process import Serving
from bench.onnx_cases import KINDS, Case, answered_by_runtime, cases, is_same, sendable
from bench.stage import Stage, stage
from cluster_serving.client import InputQueue

Serve = Callable[[Case], list[Any]]

_PORT = 26381


def check(case: Case, serve: Serve) -> str | None:
    """Return the reason why other outputs are served than ONNX Runtime gives, or an empty text. None: it gives none itself."""
    expected = answered_by_runtime(case)
    if expected is None:
        return None
    try:
        found = serve(case)
    except (Exception, SystemExit) as error:  # every failure is a result of the comparison
        return f"{type(error).__name__}: {error}".splitlines()[0]
    alike = len(found) == len(expected) and all(map(is_same, found, expected))
    return "" if alike else f"other outputs: {_described(found)} instead of {_described(expected)}"


def in_process(case: Case) -> list[Any]:
    """Serve a case by the code of reader, worker and writer, in this process."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        path.write_bytes(case.model)
        with Serving(path) as serving:
            return serving.predict(sendable(case.inputs))


def by_nodes(place: Stage) -> Serve:
    """Return a function that serves a case by a node of its own, with default settings."""
    numbers = count()

    def serve(case: Case) -> list[Any]:
        job = f"case-{next(numbers)}"
        path = place.directory / f"{job}.onnx"
        path.write_bytes(case.model)
        settings = {"modelPath": str(path), "modelParallelism": 1, "threadPerModel": 1}
        with place.node(job, **settings), InputQueue(port=place.port, name=job) as queue:
            [result] = queue.as_completed([("case", sendable(case.inputs))])
        if result.error is not None:
            raise ValueError(": ".join(result.error))
        return list(result.outputs.values())

    return serve


def _described(outputs: list[Any]) -> str:
    return ", ".join(
        f"{getattr(each, 'dtype', type(each).__name__)} {list(getattr(each, 'shape', ()))}" for each in outputs
    )


def main() -> None:
    """Print a line for each case that is not served right, and the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--one-in", type=int, default=1, help="a sample: one of so many cases")
    parser.add_argument("--only", default="", help="cases whose name contains this text")
    parser.add_argument("--nodes", action="store_true", help="through real nodes")
    options = parser.parse_args()
    counts: Counter[tuple[str, str]] = Counter()
    chosen = [case for case in cases() if options.only in case.name][:: options.one_in]
    with ExitStack() as stack:
        serve = by_nodes(stack.enter_context(stage(_PORT))) if options.nodes else in_process
        for case in chosen:
            reason = check(case, serve)
            result = "not passed by ONNX Runtime" if reason is None else "wrong" if reason else "served"
            counts[case.kind, result] += 1
            if reason:
                print(f"{case.kind} {case.name}: {reason}", flush=True)
    for kind in KINDS:
        told = {result: number for (of, result), number in sorted(counts.items()) if of == kind}
        print(f"{kind}: {', '.join(f'{number} {result}' for result, number in told.items()) or 'none'}")
    sys.exit(any(result == "wrong" for _, result in counts))


if __name__ == "__main__":
    main()
