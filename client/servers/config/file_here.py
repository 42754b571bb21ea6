"""Config file of a command: the given file, or `config.yaml` in the current directory."""

from pathlib import Path

DEFAULT_CONFIG = "config.yaml"


def file_here(given: str | Path | None = None) -> Path | None:
    """Return the given file, or `config.yaml` in the current directory. None: no file is given, and there is no `config.yaml`."""
    if given:
        return Path(given)
    here = Path(DEFAULT_CONFIG)
    return here if here.exists() else None
