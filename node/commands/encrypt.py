"""`encrypt`: encrypt the files of a model, for a node with `modelEncrypted`."""

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from cluster_serving.client.servers.process.command import SETTINGS, Command, say
from cluster_serving.client.servers.process.exit_codes import Fault
from cluster_serving.client.servers.process.printable import printable
from cluster_serving.client.servers.process.whole_file import whole_file

if TYPE_CHECKING:
    from pydantic import SecretStr

_PATH = click.Path(path_type=Path)
_NEXT = """\
Set modelPath to {target} and modelEncrypted to true.
A node takes secret and salt from CLUSTER_SERVING_MODEL_SECRET_FILE and
CLUSTER_SERVING_MODEL_SALT_FILE, or waits for the fields secret and salt of the
Redis hash model_secured. It reads the files of labels and processing as they
are: leave those outside, unencrypted."""


@click.command(cls=Command, context_settings=SETTINGS)
@click.argument("source", type=click.Path(exists=True, path_type=Path))
@click.argument("target", type=_PATH)
@click.option("--secret-file", type=_PATH, metavar="FILE", help="File with the secret.")
@click.option("--salt-file", type=_PATH, metavar="FILE", help="File with the salt.")
@click.option("--force", is_flag=True, help="Replace files that are there already.")
def encrypt(source: Path, target: Path, secret_file: Path | None, salt_file: Path | None, force: bool) -> None:
    """Encrypt SOURCE, a model's directory or file, into TARGET.

    Secret and salt come from the files given, from CLUSTER_SERVING_MODEL_SECRET[_FILE] and CLUSTER_SERVING_MODEL_SALT[_FILE],
    or are asked for. Subdirectories are encrypted too. Hidden files are left out.
    """
    from cluster_serving.client.wire.encryption import ModelCipher
    from cluster_serving.node.config.loading import load_config
    from cluster_serving.node.models.sealed import is_sealed, model_files

    if source.is_dir():
        pairs = [(file, target / file.relative_to(source)) for file in model_files(source)]
    else:
        pairs = [(source, target / source.name if target.is_dir() else target)]
    if not pairs:
        raise Fault(f"{source} holds no files")
    if source.is_dir() and target.resolve().is_relative_to(source.resolve()):
        raise Fault(f"{target} lies in {source}: give another place for the encrypted files")
    for clear, sealed in pairs:
        if is_sealed(clear):
            raise Fault(f"{clear} is encrypted already")
        if sealed.exists() and sealed.samefile(clear):
            raise Fault(f"{clear} would replace itself: give another place for the encrypted file")
        if sealed.exists() and not force:
            raise Fault(f"{sealed} exists already; give another place, or replace it with --force")
    config = load_config(None, os.environ, {}).config
    secret = _value("secret", secret_file, config.model_secret)
    salt = _value("salt", salt_file, config.model_salt)
    try:
        cipher = ModelCipher(secret, salt)
    except (ValueError, ModuleNotFoundError) as error:
        raise Fault(f"nothing was encrypted: {error}") from error
    for clear, sealed in pairs:
        sealed.parent.mkdir(parents=True, exist_ok=True)
        with clear.open("rb") as content, whole_file(sealed) as stream:
            cipher.seal_file(content, stream)
        say(f"{clear} -> {sealed}")
    click.echo(_NEXT.format(target=printable(str(target.absolute()))))


def _value(name: str, file: Path | None, given: "SecretStr | None") -> str:
    if file is not None:
        try:
            return file.read_text(encoding="utf-8").rstrip("\r\n")
        except UnicodeDecodeError as error:
            raise Fault(f"{file} is not text") from error
    if given is not None:
        return given.get_secret_value()
    if sys.stdin.isatty():
        return str(click.prompt(name.capitalize(), hide_input=True, confirmation_prompt=True))
    raise Fault(f"the {name} is missing: give --{name}-file, or set CLUSTER_SERVING_MODEL_{name.upper()}_FILE")
