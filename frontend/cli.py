"""The command `frontend`. Its options are the fields of the settings."""

import os
from typing import TYPE_CHECKING, Any

import click

from cluster_serving.client.servers.config.file_here import file_here
from cluster_serving.client.servers.config.spellings import fold
from cluster_serving.client.servers.process.command import SETTINGS, Command, say
from cluster_serving.client.servers.process.exit_codes import Fault
from cluster_serving.frontend.config.installed import check_installed

if TYPE_CHECKING:
    from cluster_serving.frontend.config.loading import LoadedFrontendConfig

check_installed()


class _Frontend(Command):
    """Command that makes its options from the settings on demand, because importing pydantic takes a tenth of a second."""

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """Return the options of the command itself, and an option for each settings key."""
        from cluster_serving.frontend.config.options import settings_options

        return [*super().get_params(ctx), *settings_options()]

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Report an unknown option as typed, and suggest an option as spelled in the help."""
        typed = {fold(word): word for word in (word.partition("=")[0] for word in args)}
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            spelled = {fold(name): name for option in self.get_params(ctx) for name in option.opts}
            close = [spelled.get(fold(name), name) for name in error.possibilities or ()]
            name = typed.get(fold(error.option_name), error.option_name)
            raise click.NoSuchOption(name, possibilities=close, ctx=ctx) from None

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options in groups, with the options of the command itself first."""
        from cluster_serving.frontend.config.options import write_groups

        own = [record for option in super().get_params(ctx) if (record := option.get_help_record(ctx))]
        with formatter.section("Options"):
            formatter.write_dl(own)
        write_groups(formatter)


@click.command(cls=_Frontend, context_settings=SETTINGS | {"token_normalize_func": fold})
@click.option("-c", "--config-path", metavar="PATH", help="Config file. Default: config.yaml, if the file exists.")
@click.option("--print-config", is_flag=True, help="Print a config file with every setting and its source, and exit.")
@click.option("--report-fd", type=int, hidden=True)
@click.option("--parent", type=int, hidden=True)
@click.pass_context
def frontend(
    context: click.Context,
    /,
    config_path: str | None,
    print_config: bool,
    report_fd: int | None,
    parent: int | None,
    **values: Any,
) -> None:
    """Answer requests over HTTP with the predictions of the nodes.

    Every setting can come from an option, the environment (CLUSTER_SERVING_PORT), or the section `frontend:` of config.yaml, in
    this order. An option may be spelled as its key too, as in the original: --tokensPerSecond is --tokens-per-second. An option
    of true|false without a value means true.

    Other users of this machine can read a command line. Passwords are safer in the environment, or in a file that the
    environment names: CLUSTER_SERVING_REDIS_PASSWORD_FILE.

    SIGHUP reads the config file and the files that it names again: processes with the new settings take over the ports without a
    failed request. With a fault in the settings, the log says so and the old settings stay.
    """
    from cluster_serving.frontend.config.loading import load_frontend_config

    flags: dict[str, object] = {f"--{name.replace('_', '-')}": value for name, value in values.items()}

    def load() -> "LoadedFrontendConfig":
        return load_frontend_config(file_here(config_path), os.environ, flags)

    if print_config:
        from cluster_serving.frontend.config.options import describe

        for line in describe(load()):
            say(line)
        return
    if parent is not None:
        from cluster_serving.client.servers.process.parent import stop_with_parent

        stop_with_parent(parent)
    from cluster_serving.client.servers.process.progress_pipe import Reporter
    from cluster_serving.frontend.server.server import serve

    report = Reporter(report_fd)
    try:
        context.exit(serve(load, report))
    except Fault as fault:
        report("failed", str(fault), fault.exit_code)
        raise
