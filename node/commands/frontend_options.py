"""Options of commands that send to a frontend instead of a queue."""

from collections.abc import Callable
from pathlib import Path

import click

from cluster_serving.client.servers.process.exit_codes import Fault


def frontend_options(function: Callable[..., None]) -> Callable[..., None]:
    """Add `--url` and `--api-key-file` to a command. The function takes them as `url` and `api_key_file`."""
    key_file = click.option(
        "--api-key-file",
        type=click.Path(path_type=Path),
        metavar="FILE",
        envvar="CLUSTER_SERVING_API_KEY_FILE",
        help="With --url: file with the API key.",
    )
    url = click.option("--url", metavar="URL", help="Send to the frontend at http://host:port, and not over Redis.")
    return url(key_file(function))


def api_key_in(file: Path | None) -> str | None:
    """Return the API key in a file, which no output of this process shows.

    Raises:
        OSError: the file cannot be read.
        Fault: the file is not text.
    """
    from cluster_serving.client.servers.process.redaction import hide

    try:
        api_key = file.read_text(encoding="utf-8").strip() if file is not None else None
    except UnicodeDecodeError as error:
        raise Fault(f"{file} is not text") from error
    hide(api_key)
    return api_key
