"""Command that installs an extra of this package, for the installation that this code runs from."""

import json
import shlex
import shutil
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

_CHECKOUT = Path(__file__).resolve().parents[1]
_IMAGE_EXTRAS = "image-extras"  # written by docker/Dockerfile


def install_command(extra: str) -> str:
    """Return the command that installs an extra, such as `pip install '.[onnx]'` in a checkout."""
    from importlib.metadata import PackageNotFoundError, distribution

    image = Path(sys.prefix) / _IMAGE_EXTRAS
    if image.exists():  # an image has no installer, and belongs to another user
        return f"make images EXTRAS={image.read_text().strip()},{extra} (in a checkout of cluster-serving)"
    try:
        origin = json.loads(distribution("cluster-serving").read_text("direct_url.json") or "{}")
    except (PackageNotFoundError, ValueError):
        origin = {}
    checkout = _CHECKOUT if (_CHECKOUT / "pyproject.toml").exists() else None
    return f"{_installer(Path(sys.executable))} install {_requirement(extra, origin, checkout)}"


def _requirement(extra: str, origin: dict[str, Any], checkout: Path | None) -> str:
    """Return the arguments of `install`.

    Args:
        extra: name of the extra.
        origin: content of `direct_url.json` (PEP 610). Empty: the package came from an index, or is not installed.
        checkout: checkout that this code runs from, if any.
    """
    address = str(origin.get("url", ""))
    if "vcs_info" in origin:
        vcs = origin["vcs_info"]
        revision = f"@{vcs['requested_revision']}" if "requested_revision" in vcs else ""
        return shlex.quote(f"cluster-serving[{extra}] @ {vcs['vcs']}+{address}{revision}")
    url = urlsplit(address)
    if checkout is None and url.scheme == "file":
        checkout = Path(unquote(url.path))  # or a wheel
    if checkout is not None and checkout.exists():
        editable = "-e " if origin.get("dir_info", {}).get("editable") else ""
        place = "." if checkout == Path.cwd() else str(checkout)
        return f"{editable}{shlex.quote(f'{place}[{extra}]')}"
    # pip and uv keep the package that is there, whose source may be gone, and add what the extra asks for.
    at = f" @ {address}" if url.scheme in {"http", "https"} else ""
    return shlex.quote(f"cluster-serving[{extra}]{at}")


def _installer(python: Path) -> str:
    """Return the command of the installer for a Python: the pip that a shell finds, if it is of this Python."""
    found = shutil.which("pip")
    if found is not None and Path(found).parent == python.parent:
        return "pip"
    if find_spec("pip") is not None:
        return f"{shlex.quote(str(python))} -m pip"
    if shutil.which("uv") is not None:
        return f"uv pip --python {shlex.quote(str(python))}"
    return f"python3 -m pip --python {shlex.quote(str(python))}"
