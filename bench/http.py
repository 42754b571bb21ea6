"""Speed of HTTP: requests a second and latency of one 128-float JSON predict, beside a bare handler and other model servers.

A tiny numpy MLP (128 -> 256 -> 10 float32), one worker, wrk with one thread at 1, 16 and 64 connections. In each round every
server is started, warmed up, measured and stopped, one after another, so that the ratios compare servers at about the same time.
"""

import argparse
import tempfile
from pathlib import Path

from rich.console import Console
from rich.table import Table

from bench import report
from bench.http_load import load
from bench.http_peers import PEERS
from bench.http_servers import Server, bare, free_port, ours
from cluster_serving.node.load.machine import machine

CONNECTIONS = (1, 16, 64)


def main() -> None:
    """Measure, print a table, and write the figures where they are wanted."""
    parser = argparse.ArgumentParser(description=report.first_line(__doc__))
    parser.add_argument(
        "--install-peers", action="store_true", help="make the environments of the other servers, and end"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there")
    parser.add_argument("--seconds", type=int, default=4, help="of each load")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument(
        "--servers", nargs="+", metavar="NAME", help="only these: bare, ours, or the name of another one"
    )
    options = parser.parse_args()
    if options.install_peers:
        for peer in PEERS:
            print(f"{peer.installed.name} {peer.installed.install() or peer.installed.version()}")
        return
    versions, servers = _servers(options.servers)
    rounds = [_round(servers, options.seconds) for _ in range(options.rounds)]
    _show(servers, rounds, versions)
    report.write(options.json, rounds, versions=versions)


def _servers(wanted: list[str] | None) -> tuple[dict[str, str], list[Server]]:
    versions: dict[str, str] = {}
    servers = [bare(), ours()]
    for peer in PEERS:
        if why := peer.installed.missing():
            print(f"{peer.installed.name} is skipped: {why}")
        else:
            versions[peer.installed.name] = peer.installed.version()
            servers += peer.servers()
    return versions, [each for each in servers if wanted is None or each.name.partition(",")[0] in wanted]


def _round(servers: list[Server], seconds: int) -> report.Figures:
    figures: report.Figures = {}
    for server in servers:
        figures |= _turn(server, seconds)
    for server in servers:
        for count in CONNECTIONS:
            if base := figures.get(f"bare.{count}.requests_per_s"):
                figures[f"{server.name}.{count}.of_bare"] = figures[f"{server.name}.{count}.requests_per_s"] / base
    return figures


def _turn(server: Server, seconds: int) -> report.Figures:
    port = free_port()
    url = f"http://127.0.0.1:{port}{server.path}"
    with tempfile.NamedTemporaryFile() as body, server.running(port):
        path = Path(body.name)
        path.write_bytes(server.body)
        server.await_ready(port)
        load(url, path, max(CONNECTIONS), 1)  # warm-up
        turns = {count: load(url, path, count, seconds) for count in CONNECTIONS}
    figures = {f"{server.name}.{count}.requests_per_s": turn.requests_per_s for count, turn in turns.items()}
    figures[f"{server.name}.p50_ms"] = turns[1].p50_ms
    figures[f"{server.name}.p99_ms"] = turns[1].p99_ms
    figures[f"{server.name}.failed"] = sum(turn.failed for turn in turns.values())
    return figures


def _show(servers: list[Server], rounds: list[report.Figures], versions: dict[str, str]) -> None:
    told = ", ".join(f"{name} {version}" for name, version in versions.items())
    table = Table(
        title="HTTP: 128-float JSON predict, requests/s at 1, 16 and 64 connections;\nms at 1; ratio to bare at 64",
        caption=f"medians of {len(rounds)} rounds; {told}; {machine()}",
        title_justify="left",
    )
    table.add_column("server")
    for heading in (*map(str, CONNECTIONS), "p50 ms", "p99 ms", "/ bare"):
        table.add_column(heading, justify="right")
    middle = report.medians(rounds)
    for name in (server.name for server in servers):
        rates = [f"{middle[f'{name}.{count}.requests_per_s']:,.0f}" for count in CONNECTIONS]
        ratio = middle.get(f"{name}.{max(CONNECTIONS)}.of_bare")
        times = [f"{middle[f'{name}.{quantile}_ms']:.2f}" for quantile in ("p50", "p99")]
        failed = sum(figures[f"{name}.failed"] for figures in rounds)
        table.add_row(
            f"{name} ({failed:.0f} failed)" if failed else name, *rates, *times, f"{ratio:.2f}" if ratio else ""
        )
    Console().print(table)


if __name__ == "__main__":
    main()
