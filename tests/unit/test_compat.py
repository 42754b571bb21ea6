"""`zoo.serving` and `bigdl.serving`: the original's names, beside other packages and never over the original."""

import importlib
import os
import shutil
import subprocess
import sys
import tomllib
import venv
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from cluster_serving import __version__

COMPAT = Path(__file__).resolve().parents[2] / "client" / "compat"
NAMES = ("zoo", "bigdl")


@pytest.mark.parametrize("name", NAMES)
def test_queues_have_the_attributes_of_the_original(name: str) -> None:
    client = importlib.import_module(f"{name}.serving.client")

    default, given = client.InputQueue(), client.OutputQueue(host="10.0.0.1", port=7000, name="job")

    assert (default.host, default.port, default.name, default.frontend_url) == (
        "localhost",
        "6379",
        "serving_stream",
        None,
    )
    assert (given.host, given.port, given.name) == ("10.0.0.1", "7000", "job")
    assert (default.input_threshold, default.interval_if_error) == (0.6, 1)
    assert default.output_queue.port == "6379"
    assert default.db.connection_pool.connection_kwargs["host"] == "localhost"
    assert client.API("h", 1, "n").name == "n"
    assert client.RESULT_PREFIX == "cluster-serving_"


@pytest.mark.parametrize(
    ("arguments", "settings", "expected"),
    [
        pytest.param(("h", 1, True, None), {}, ("h", "1", None), id="0.9"),
        pytest.param(("h",), {"port": "1", "sync": True}, ("h", "1", None), id="host alone"),
        pytest.param(("1.1.1.1:1",), {}, ("localhost", "6379", "1.1.1.1:1"), id="frontend"),
        pytest.param((), {"frontend_url": "1.1.1.1:1", "sync": True}, ("localhost", "6379", "1.1.1.1:1"), id="by name"),
    ],
)
def test_an_input_queue_is_made_as_in_every_version(
    arguments: tuple[object, ...],
    settings: dict[str, object],
    expected: tuple[str, str, str | None],
    capsys: pytest.CaptureFixture[str],
) -> None:
    from zoo.serving.client import InputQueue

    queue = InputQueue(*arguments, **settings)

    assert (queue.host, queue.port, queue.frontend_url) == expected
    printed = capsys.readouterr().out
    assert printed.startswith("Connection error, please check your HTTP server. Error msg is ") == bool(expected[2])


def test_too_many_arguments_are_refused() -> None:
    from bigdl.serving.client import InputQueue

    with pytest.raises(TypeError, match="host, port, sync, frontend_url in order"):
        InputQueue("h", 1, True, None, "job")


def test_a_column_is_that_of_the_original() -> None:
    from zoo.serving.schema import get_field_and_data

    field, column = get_field_and_data("t", np.array([[1], [2]]))

    assert field.name == "t"
    assert column.to_pylist() == [
        {"indiceData": [], "indiceShape": None, "data": None, "shape": None},
        {"indiceData": None, "indiceShape": [], "data": None, "shape": None},
        {"indiceData": None, "indiceShape": None, "data": [1.0, 2.0], "shape": None},
        {"indiceData": None, "indiceShape": None, "data": None, "shape": [2, 1]},
    ]
    assert pa.RecordBatch.from_arrays([column], schema=pa.schema([field])).num_rows == 4
    with pytest.raises(TypeError, match="empty list is not supported"):
        get_field_and_data("t", [])


def test_an_image_is_encoded() -> None:
    from bigdl.serving.client import InputQueue
    from bigdl.serving.schema import encode_image

    text = encode_image(np.zeros((2, 3, 3), np.uint8))

    assert text.startswith("/9j/")  # the signature of a JPEG
    assert InputQueue.base64_encode_image(b"\xff\xd8\xff") == "/9j/"


def site_packages(folder: Path) -> Path:
    """A Python of its own, with a module of the original's BigDL in it."""
    venv.create(folder, with_pip=False, symlinks=True)
    place = next(folder.glob("lib/python*/site-packages"))
    (place / "bigdl" / "serving").mkdir(parents=True)
    (place / "bigdl" / "serving" / "client.py").write_text("class InputQueue: pass\n")
    (place / "bigdl" / "orca").mkdir()
    (place / "bigdl" / "orca" / "__init__.py").write_text("here = True\n")
    metadata = place / "bigdl_serving-2.4.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: bigdl-serving\nVersion: 2.4.0\n")
    (metadata / "RECORD").write_text("bigdl/serving/client.py,,\n")
    return place


def run(python: Path, code: str, cwd: Path, *path: Path) -> subprocess.CompletedProcess[str]:
    """Run code with that Python, and with folders on its search path."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(map(str, path))}
    command = [str(python), "-c", code]
    return subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=120, check=False)


def test_the_original_is_neither_replaced_nor_shadowed_silently(tmp_path: Path) -> None:
    place = site_packages(tmp_path / "venv")
    python = tmp_path / "venv" / "bin" / "python"
    files = {file.relative_to(COMPAT) for file in COMPAT.rglob("*.py")} - {Path("setup.py")}

    assert not any((place / file).exists() for file in files)  # an installation replaces no file
    shutil.copytree(COMPAT, place, dirs_exist_ok=True)
    met = run(python, "import bigdl.orca; assert bigdl.orca.here; import bigdl.serving.client", tmp_path)
    other = run(python, "import zoo.serving.client", tmp_path, *map(Path, sys.path[1:]))

    assert met.returncode == 1
    assert met.stderr.splitlines()[-1] == (
        "ImportError: bigdl.serving.client is there twice: from bigdl-serving, and from cluster-serving-compat. To use Cluster "
        "Serving, pip uninstall bigdl-serving; to keep the original, pip uninstall cluster-serving-compat."
    )
    assert (other.returncode, other.stderr) == (0, "")


def test_it_is_not_built_where_the_original_is_installed(tmp_path: Path) -> None:
    site_packages(tmp_path / "venv")
    source = shutil.copytree(COMPAT, tmp_path / "compat")
    build = "from setuptools.build_meta import build_wheel; build_wheel('.')"
    libraries = [Path(folder) for folder in sys.path if folder.endswith("site-packages")]

    refused = run(tmp_path / "venv" / "bin" / "python", build, source, *libraries)

    assert refused.returncode == 1
    assert refused.stderr.startswith("cluster-serving-compat is not installed: bigdl.serving.client of the original is")
    assert not list(source.glob("*.whl"))


def test_both_distributions_have_one_version() -> None:
    assert tomllib.loads((COMPAT / "pyproject.toml").read_text())["project"]["version"] == __version__
