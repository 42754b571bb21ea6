"""Fuzzes the codecs with atheris, one target after another: `python -m fuzz.fuzz_codecs --seconds 60`, in tests/.

    corpus/<target>/     inputs that reach different places of the code; kept in the repository
    --found DIRECTORY    where new ones go, and the input of a failure; default: a temporary directory

Only Python is instrumented: pyarrow, numpy and OpenCV are fuzzed from outside. Inputs have a few kilobytes, so that one which
makes the process grow to `_MOST_MEGABYTES`, or takes ten seconds, fails as what it is.
"""

import argparse
import importlib
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

CORPUS = Path(__file__).with_name("corpus")
_TARGETS = ("native_tensor", "native_result", "original_record", "original_result", "json_record", "image", "entry")
_MOST_MEGABYTES = 700  # 150 of them are there at the start
_ENVIRONMENT = {
    "OPENCV_IO_MAX_IMAGE_PIXELS": str(1 << 20),
    "OPENCV_LOG_LEVEL": "SILENT",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
}


def fuzz_one(target: str, options: list[str]) -> None:
    """Fuzz one target in this process; libFuzzer ends it."""
    import cv2

    atheris: Any = importlib.import_module("atheris")  # has no types
    cv2.setNumThreads(1)
    with atheris.instrument_imports(include=["cluster_serving"]):
        from fuzz.targets import TARGETS
    atheris.Setup([sys.argv[0], *options], TARGETS[target])
    atheris.Fuzz()


def run(target: str, seconds: int, found: Path) -> tuple[bool, str]:
    """Fuzz one target in a process of its own.

    Returns:
        Whether it is clean, and what libFuzzer says in the end.
    """
    new = found / target
    new.mkdir(parents=True, exist_ok=True)
    options = [f"-max_total_time={seconds}", "-timeout=10", f"-rss_limit_mb={_MOST_MEGABYTES}", "-max_len=8192"]
    options += [f"-artifact_prefix={new}/failure-", "-print_final_stats=1", str(new), str(CORPUS / target)]
    command = [sys.executable, "-m", "fuzz.fuzz_codecs", "--target", target, "--", *options]
    done = subprocess.run(
        command, env=os.environ | _ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False
    )
    text = done.stdout.decode(errors="replace")
    executed = re.search(r"number_of_executed_units: (\d+)", text)
    inputs = sum(1 for path in new.iterdir() if not path.name.startswith("failure-"))
    clean = done.returncode == 0 and executed is not None
    summary = f"{target:16} {executed[1] if executed else '?':>9} executions, {inputs} new inputs"
    return clean, summary if clean else f"{summary}\n{text[-4000:]}\nfailed; its input is in {new}"


def main() -> int:
    """The exit code: 0 when every target is clean."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=int, default=60, help="of all targets together")
    parser.add_argument("--target", choices=_TARGETS)
    parser.add_argument("--found", type=Path)
    parser.add_argument("options", nargs="*", help="of libFuzzer, after --")
    given = parser.parse_args()
    if given.options:
        fuzz_one(given.target, given.options)
    targets = [given.target] if given.target else _TARGETS
    found = given.found or Path(tempfile.mkdtemp(prefix="fuzz-"))
    clean = True
    for target in targets:
        good, summary = run(target, max(1, given.seconds // len(targets)), found)
        clean &= good
        print(summary, flush=True)
    return 0 if clean else 1


if __name__ == "__main__":
    sys.exit(main())
