"""The command that installs an extra works for the installation that there is."""

import sys
from pathlib import Path
from typing import Any

import pytest

from cluster_serving.client import extras
from cluster_serving.client.extras import install_command

CHECKOUT = Path(__file__).resolve().parents[2]


def test_from_this_checkout(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent))
    monkeypatch.chdir(CHECKOUT)
    inside = install_command("onnx").replace("-e ", "")
    monkeypatch.chdir(tmp_path)
    outside = install_command("onnx").replace("-e ", "")

    assert inside == "pip install '.[onnx]'"
    assert outside == f"pip install '{CHECKOUT}[onnx]'"


@pytest.mark.parametrize(
    ("origin", "checkout", "requirement"),
    [
        ({}, None, "'cluster-serving[onnx]'"),
        ({}, "/usr", "'/usr[onnx]'"),
        ({"url": "file:///usr", "dir_info": {"editable": True}}, "/usr", "-e '/usr[onnx]'"),
        ({"url": "file:///usr", "dir_info": {}}, None, "'/usr[onnx]'"),
        ({"url": "file:///a%20b/gone-1.whl", "archive_info": {}}, None, "'cluster-serving[onnx]'"),
        ({"url": "https://h/c.whl", "archive_info": {}}, None, "'cluster-serving[onnx] @ https://h/c.whl'"),
        (
            {"url": "https://h/r.git", "vcs_info": {"vcs": "git", "commit_id": "0"}},
            None,
            "'cluster-serving[onnx] @ git+https://h/r.git'",
        ),
        (
            {"url": "file:///usr", "vcs_info": {"vcs": "git", "commit_id": "0", "requested_revision": "v1"}},
            None,
            "'cluster-serving[onnx] @ git+file:///usr@v1'",
        ),
    ],
)
def test_from_everywhere(origin: dict[str, Any], checkout: str | None, requirement: str) -> None:
    made = extras._requirement("onnx", origin, Path(checkout) if checkout else None)  # pyright: ignore[reportPrivateUsage]

    assert made == requirement


def test_in_an_image(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "image-extras").write_text("onnx,http\n")
    monkeypatch.setattr(sys, "prefix", str(tmp_path))

    assert install_command("torch") == "make images EXTRAS=onnx,http,torch (in a checkout of cluster-serving)"
    assert (CHECKOUT / "docker" / "Dockerfile").read_text().count("> /opt/cluster-serving/image-extras") == 2


@pytest.mark.parametrize(
    ("programs", "has_pip", "installer"),
    [
        (["venv/pip"], True, "pip"),
        (["bin/pip"], True, "{venv}/python -m pip"),
        (["bin/uv"], False, "uv pip --python {venv}/python"),
        (["bin/pip"], False, "python3 -m pip --python {venv}/python"),
    ],
    ids=["activated", "not_activated", "made_by_uv", "without_pip"],
)
def test_installer_is_that_of_this_python(
    programs: list[str], has_pip: bool, installer: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for program in programs:
        path = tmp_path / program
        path.parent.mkdir()
        path.touch(0o755)
        monkeypatch.setenv("PATH", str(path.parent))
    monkeypatch.setattr(extras, "find_spec", {"pip": object() if has_pip else None}.get)

    made = extras._installer(tmp_path / "venv" / "python")  # pyright: ignore[reportPrivateUsage]

    assert made == installer.format(venv=tmp_path / "venv")
