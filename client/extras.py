"""Command that installs an extra of this package, from the place that this installation came from."""

import json
import shlex
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

_CHECKOUT = Path(__file__).resolve().parents[1]


def install_command(extra: str) -> str:
    """Return the command that installs an extra, such as `pip install '.[onnx]'` in a checkout."""
    from importlib.metadata import PackageNotFoundError, distribution

    try:
        origin = json.loads(distribution("cluster-serving").read_text("direct_url.json") or "{}")
    except (PackageNotFoundError, ValueError):
        origin = {}
    return _command(extra, origin, _CHECKOUT if (_CHECKOUT / "pyproject.toml").exists() else None)


def _command(extra: str, origin: dict[str, Any], checkout: Path | None) -> str:
    """Return the command of an installation.

    Args:
        extra: name of the extra.
        origin: content of `direct_url.json` (PEP 610). Empty: the package came from an index, or is not installed.
        checkout: checkout that this code runs from, if any.
    """
    url = urlsplit(origin.get("url", ""))
    if checkout is None and url.scheme == "file":
        checkout = Path(unquote(url.path))  # or a wheel
        if not checkout.exists():
            return f"pip install '.[{extra}]', in a checkout of cluster-serving"
    if checkout is not None:
        editable = "-e " if origin.get("dir_info", {}).get("editable") else ""
        place = "." if checkout == Path.cwd() else str(checkout)
        return f"pip install {editable}{shlex.quote(f'{place}[{extra}]')}"
    at = f" @ {origin['vcs_info']['vcs']}+{origin['url']}" if "vcs_info" in origin else ""
    return f"pip install {shlex.quote(f'cluster-serving[{extra}]{at}')}"
