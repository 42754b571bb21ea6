"""One turn of wrk: so many connections that POST the same body for some seconds, each the next as soon as it has its answer."""

import json
import subprocess
from dataclasses import dataclass
from pathlib import Path

_SCRIPT = Path(__file__).with_name("predict.lua")


@dataclass(frozen=True)
class Turn:
    """Figures of one turn; `failed`: answers that were no 200, and connections that broke or waited over two seconds."""

    requests_per_s: float
    p50_ms: float
    p99_ms: float
    failed: int


def load(url: str, body: Path, connections: int, seconds: int) -> Turn:
    """Run wrk with one thread.

    Raises:
        SystemExit: it is not installed, or failed.
    """
    command = ["wrk", "-t1", f"-c{connections}", f"-d{seconds}s", "--latency", "-s", str(_SCRIPT), url, "--", str(body)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError as error:
        raise SystemExit("wrk is not installed; on Debian and Ubuntu: apt-get install wrk") from error
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} failed:\n{done.stdout}{done.stderr}")
    told = json.loads(done.stdout.splitlines()[-1])
    return Turn(
        requests_per_s=(told["requests"] - told["failed"]) / told["duration_us"] * 1e6,
        p50_ms=told["p50_us"] / 1000,
        p99_ms=told["p99_us"] / 1000,
        failed=told["failed"],
    )
