"""The command that installs an extra works for the installation that there is."""

from pathlib import Path
from typing import Any

import pytest

from cluster_serving.client import extras
from cluster_serving.client.extras import install_command

CHECKOUT = Path(__file__).resolve().parents[2]


def test_from_this_checkout(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(CHECKOUT)
    inside = install_command("onnx").replace("-e ", "")
    monkeypatch.chdir(tmp_path)
    outside = install_command("onnx").replace("-e ", "")

    assert inside == "pip install '.[onnx]'"
    assert outside == f"pip install '{CHECKOUT}[onnx]'"


@pytest.mark.parametrize(
    ("origin", "checkout", "command"),
    [
        ({}, None, "pip install 'cluster-serving[onnx]'"),
        ({}, "/src", "pip install '/src[onnx]'"),
        ({"url": "file:///src", "dir_info": {"editable": True}}, "/src", "pip install -e '/src[onnx]'"),
        ({"url": "file:///usr", "dir_info": {}}, None, "pip install '/usr[onnx]'"),
        (
            {"url": "file:///gone/cluster_serving-1.whl", "archive_info": {}},
            None,
            "pip install '.[onnx]', in a checkout of cluster-serving",
        ),
        (
            {"url": "https://h/r.git", "vcs_info": {"vcs": "git", "commit_id": "0"}},
            None,
            "pip install 'cluster-serving[onnx] @ git+https://h/r.git'",
        ),
    ],
)
def test_from_everywhere(origin: dict[str, Any], checkout: str | None, command: str) -> None:
    made = extras._command("onnx", origin, Path(checkout) if checkout else None)  # pyright: ignore[reportPrivateUsage]

    assert made == command
