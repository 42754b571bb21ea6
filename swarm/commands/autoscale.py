"""Command `swarm autoscale`."""

from pathlib import Path

import click

from cluster_serving.client.servers.config.sources import ENVIRON_PREFIX
from cluster_serving.client.servers.config.values import has_host
from cluster_serving.client.servers.process.command import SETTINGS, Command
from cluster_serving.swarm.commands.options import cannot_listen, config_option, listening_option

SCALER = f"{ENVIRON_PREFIX}SCALER_URL"


def _checked(_context: click.Context, _option: click.Parameter, url: str) -> str:
    if not (url.startswith(("http://", "https://")) and has_host(url)):
        raise click.BadParameter(f"{url!r} is no URL such as http://scaler:10030")
    return url


@click.command(cls=Command, context_settings=SETTINGS, short_help="Let the number of nodes follow the load.")
@config_option
@click.option("--redis-url", metavar="URL", help="host:port or URL of Redis.")
@click.option(
    "--scaler",
    "scaler_url",
    envvar=SCALER,
    default="http://scaler:10030",
    callback=_checked,
    metavar="URL",
    help="Address of swarm scaler; http://scaler:10030.",
)
@listening_option
@click.option("--dry-run", is_flag=True, help="Log decisions, and change nothing (dryRun).")
def autoscale(config_path: Path | None, redis_url: str | None, scaler_url: str, port: int, dry_run: bool) -> None:
    """Let the number of nodes follow the load, until SIGTERM.

    It is a service of a stack that is deployed with `--with autoscale`. The settings stand below `autoscale` in config.yaml. Each
    decision is a line in the log, and Prometheus finds wanted and actual numbers, and the reason, at the port.
    """
    import os
    import signal
    import threading
    import time
    from datetime import UTC, datetime

    from prometheus_client import start_http_server

    from cluster_serving.client.servers.process.log import configure
    from cluster_serving.client.servers.process.redaction import hide, secrets_of_config
    from cluster_serving.client.threads.link import Link
    from cluster_serving.node.config.loading import load_config
    from cluster_serving.swarm.autoscale.loop import LOOK_S, Autoscaler, Metrics
    from cluster_serving.swarm.autoscale.settings import load_autoscale

    config = load_config(config_path, os.environ, {"--redis-url": redis_url}).config
    settings = load_autoscale(config_path, os.environ, {"dryRun": True if dry_run else None})
    hide(*secrets_of_config(config))
    configure("autoscaler", config.log_level)
    stop = threading.Event()

    def end(_number: int, _frame: object) -> None:
        stop.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, end)
    metrics = Metrics()
    try:
        server, _ = start_http_server(port, registry=metrics.registry)
    except OSError as error:
        raise cannot_listen(port, error) from error
    link = Link(config.redis_settings())
    autoscaler = Autoscaler(config.job_name, link, scaler_url, settings, metrics)
    try:
        while not stop.is_set():
            autoscaler.look(time.monotonic(), datetime.now(UTC))
            stop.wait(LOOK_S)
    finally:
        server.shutdown()
        link.close()
