"""`init`, `config` and `completion`: commands for use before the first start."""

import json
import os
from pathlib import Path
from typing import Any

import click

from cluster_serving.client.servers.config.file_here import DEFAULT_CONFIG, file_here
from cluster_serving.client.servers.process.command import SETTINGS, Command, say
from cluster_serving.client.servers.process.exit_codes import Fault
from cluster_serving.client.servers.process.whole_file import whole_file
from cluster_serving.node.lifecycle.options import StartOptions, start_options

_TEMPLATE = Path(__file__).parents[1] / "config" / DEFAULT_CONFIG


@click.command(cls=Command, context_settings=SETTINGS)
def init() -> None:
    """Put a config.yaml here, unless the file exists."""
    file = Path(DEFAULT_CONFIG)
    already = ""
    try:
        with whole_file(file, new=True) as stream:
            stream.write(_TEMPLATE.read_bytes())
    except FileExistsError:
        already = "already "
    except OSError as error:
        raise Fault(f"{file.absolute()}: {error.strerror}. Initialization failed.") from error
    click.echo("Cluster Serving config file prepared.")
    click.echo(f"Cluster Serving environment {already}set up. Initialization success.")
    if not already:
        click.echo(f"Next: set modelPath in {DEFAULT_CONFIG}, then cluster-serving start.")


@click.command(cls=Command, context_settings=SETTINGS)
@start_options
@click.option("--json", "as_json", is_flag=True, help="JSON: an object of settings, each with value and source.")
def config(as_json: bool, **values: Any) -> None:
    """Print every setting and its source.

    Secrets are masked. Of a running job, speed and agreement of the engines and precisions that were tried are printed too.
    """
    import msgspec

    from cluster_serving.client.servers.process.table import Table
    from cluster_serving.node.commands.job_reports import JobReports
    from cluster_serving.node.config.loading import effective, load_config
    from cluster_serving.node.job.directory import Job
    from cluster_serving.node.job.redis_errors import RedisUnavailable
    from cluster_serving.node.job.redis_program import find_server
    from cluster_serving.node.models.runtime import TriedRuntime

    options = StartOptions.of(values)
    has_file = file_here(options.config_path) is not None
    loaded = options.load()[0] if has_file else load_config(None, os.environ, options.flags())
    shown = {key: {"value": value, "source": loaded.sources[key]} for key, value in effective(loaded).items()}
    if as_json:
        click.echo(json.dumps(shown, indent=2))
        return
    table = Table("setting", "value", "source", wide={"value"})
    for key, entry in shown.items():
        value = entry["value"]
        text = "-" if value is None or value == "" else str(value)
        table.add(key, text.lower() if isinstance(value, bool) else text, str(entry["source"]))
    table.show()
    for key, why in loaded.ignored.items():
        say(f"{key} is ignored: {why}")
    job = Job.of(loaded.config.job_name)
    for tried in (JobReports().of(job).get("candidates") if job.running() else None) or ():
        say(f"Tried: {msgspec.convert(tried, TriedRuntime).described()}.")
    settings = loaded.config.redis_settings()
    if not settings.is_local_default:
        say(f"Redis: {settings.describe()}; start does not run it.")
        return
    try:
        program = find_server(os.environ, job.redis_directory).described()
        start = f"where none listens, start runs {program}"
    except RedisUnavailable as error:
        start = f"start cannot run one there: {error}"
    say(f"Redis: {settings.describe()}; {start}.")


@click.command(cls=Command, context_settings=SETTINGS)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print a completion script for a shell.

    For bash: eval "$(cluster-serving completion bash)"
    """
    from click.shell_completion import get_completion_class

    kind = get_completion_class(shell)
    if kind is None:
        raise Fault(f"no completion for {shell}")
    program = context.find_root().command
    click.echo(kind(program, {}, "cluster-serving", "_CLUSTER_SERVING_COMPLETE").source())
