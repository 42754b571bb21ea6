"""Models from S3."""

import gzip
import hashlib
import io
import subprocess
import tarfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from cluster_serving.client.servers.process.exit_codes import ModelFault
from cluster_serving.node.fetching.cache import Entry
from cluster_serving.node.fetching.fetch import Request, fetch
from cluster_serving.node.fetching.progress import Progress
from support.s3_server import S3Server, s3_server


@pytest.fixture(scope="module")
def shared_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with s3_server(tmp_path_factory.mktemp("s3")) as server:
        yield server


@pytest.fixture
def server(shared_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> S3Server:
    for name, value in shared_server.environ.items():
        monkeypatch.setenv(name, value)
    return shared_server


def fetch_into(directory: Path, url: str, checksum: str = "") -> Entry:
    return fetch(Request(url, checksum, directory, 1 << 30), Progress(lambda text: None, threading.Event()))


def files(entry: Entry) -> dict[str, bytes]:
    found = [path for path in entry.path.rglob("*") if path.is_file()]
    return {path.relative_to(entry.path).as_posix(): path.read_bytes() for path in found}


FOLDER = {"saved_model.pb": b"graph", "variables/variables.index": b"index", "assets/ä b.txt": b"words"}


def checksum_of(folder: dict[str, bytes]) -> str:
    """As the README says: `sha256sum` of all files by name, and of what it prints."""
    lines = "".join(f"{hashlib.sha256(folder[name]).hexdigest()}  {name}\n" for name in sorted(folder))
    return f"sha256:{hashlib.sha256(lines.encode()).hexdigest()}"


@pytest.mark.parametrize("url", ["s3://models/folder/v1", "s3://models/folder/v1/"])
@pytest.mark.parametrize("checksum", ["", checksum_of(FOLDER)])
def test_a_prefix_is_the_folder_of_the_model(server: S3Server, tmp_path: Path, url: str, checksum: str) -> None:
    for name, content in FOLDER.items():
        server.put(f"folder/v1/{name.replace('ä b', '%C3%A4%20b')}", content)
    server.put("folder/v10/other.pb", b"not this one")

    first, second = (fetch_into(tmp_path / "cache", url, checksum) for _ in range(2))

    assert files(first) == FOLDER
    assert second.path == first.path


def test_the_checksum_of_the_docs_counts_hidden_files(server: S3Server, tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs/how-to/model-urls.md").read_text()
    (command,) = [line for line in page.splitlines() if line.startswith("find ")]
    folder = {
        ".gitattributes": b"*.bin lfs",
        "-m.onnx": b"weights",
        "a b/.hidden": b"x",
        "a b/c.txt": b"words",
        "Z": b"",
    }
    for name, content in folder.items():
        (tmp_path / "folder" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "folder" / name).write_bytes(content)
        server.put(f"hidden/{name.replace(' ', '%20')}", content)

    printed = subprocess.run(
        ["/bin/sh", "-c", command], cwd=tmp_path / "folder", check=True, capture_output=True, text=True
    )

    checksum = f"sha256:{printed.stdout.split()[0]}"
    assert files(fetch_into(tmp_path / "cache", "s3://models/hidden/", checksum)) == folder


def test_a_changed_object_is_another_version(server: S3Server, tmp_path: Path) -> None:
    server.put("changing/m.onnx", b"one")
    first = fetch_into(tmp_path / "cache", "s3://models/changing/")
    server.put("changing/m.onnx", b"two")

    assert files(fetch_into(tmp_path / "cache", "s3://models/changing/")) == {"m.onnx": b"two"}
    assert files(first) == {"m.onnx": b"one"}


def test_a_folder_that_changes_on_the_way_is_kept_under_its_own_version(server: S3Server, tmp_path: Path) -> None:
    server.put("swapped/m.xml", b"old")
    server.put("swapped/m.bin", b"old")
    told: list[str] = []

    def say(text: str) -> None:
        told.append(text)
        if len(told) == 1:  # the list is read, and no file yet
            server.put("swapped/m.xml", b"new")

    entry = fetch(Request("s3://models/swapped/", "", tmp_path / "cache", 1 << 30), Progress(say, threading.Event()))
    server.put("swapped/m.bin", b"new")

    assert files(entry) == {"m.xml": b"new", "m.bin": b"old"}
    assert files(fetch_into(tmp_path / "cache", "s3://models/swapped/")) == {"m.xml": b"new", "m.bin": b"new"}
    server.put("swapped/m.xml", b"old")
    server.put("swapped/m.bin", b"old")
    assert files(fetch_into(tmp_path / "cache", "s3://models/swapped/")) == {"m.xml": b"old", "m.bin": b"old"}


def test_a_folder_that_is_being_uploaded_is_fetched_anew(server: S3Server, tmp_path: Path) -> None:
    server.put("growing/m.xml", b"new")
    told: list[str] = []

    def say(text: str) -> None:
        told.append(text)
        if len(told) == 1:  # the list is read
            server.put("growing/m.bin", b"new")

    entry = fetch(Request("s3://models/growing/", "", tmp_path / "cache", 1 << 30), Progress(say, threading.Event()))

    assert files(entry) == {"m.xml": b"new", "m.bin": b"new"}
    assert len(told) == 2


def test_an_archive_is_unpacked(server: S3Server, tmp_path: Path) -> None:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        tar.addfile(tarfile.TarInfo("m.onnx"))
    content = gzip.compress(buffer.getvalue())
    server.put("m.tgz", content)

    entry = fetch_into(tmp_path / "cache", "s3://models/m.tgz", f"sha256:{hashlib.sha256(content).hexdigest()}")

    assert files(entry) == {"m.onnx": b""}


@pytest.mark.parametrize(
    ("url", "checksum", "why"),
    [
        ("s3://models/nothing", "", "is not there: there is no such object, and none below this prefix"),
        ("s3://models/nothing/", "", "is not there"),
        ("s3://nobucket/m.tgz", "", "cannot be fetched: the server answers 404 Not Found (NoSuchBucket)"),
        ("s3://models/wrong/", f"sha256:{'0' * 64}", "is not what modelChecksum says"),
    ],
)
def test_what_cannot_be_had(server: S3Server, tmp_path: Path, url: str, checksum: str, why: str) -> None:
    server.put("wrong/m.onnx", b"x")

    with pytest.raises(ModelFault) as raised:
        fetch_into(tmp_path / "cache", url, checksum)

    assert str(raised.value).startswith(f"{url} {why}")
    assert "\n" not in str(raised.value)
    assert not list((tmp_path / "cache").iterdir())


def test_an_object_with_a_name_that_leads_elsewhere(server: S3Server, tmp_path: Path) -> None:
    server.put("odd/%2E%2E/m.onnx", b"x")

    with pytest.raises(ModelFault, match="object with invalid path"):
        fetch_into(tmp_path / "cache", "s3://models/odd/")


def test_credentials_from_a_file(server: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    server.put("m.onnx", b"weights")
    file = tmp_path / "credentials"
    file.write_text(
        "[default]\naws_access_key_id = key\naws_secret_access_key = 100%secret\naws_session_token = t\n[half]\n"
    )
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(file))

    entry = fetch_into(tmp_path / "cache", "s3://models/m.onnx")

    assert files(entry) == {"m.onnx": b"weights"}
    for profile, path, why in (
        ("half", file, "has no complete profile half"),
        ("", tmp_path / "none", "is no readable file"),
    ):
        monkeypatch.setenv("AWS_PROFILE", profile)
        monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(path))
        with pytest.raises(ModelFault, match=f"AWS_SHARED_CREDENTIALS_FILE, {path}, {why}"):
            fetch_into(tmp_path / "cache", "s3://models/m.onnx")


def test_no_server(server: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")

    with pytest.raises(ModelFault, match=r"s3://models/m\.tgz cannot be reached: Connection refused"):
        fetch_into(tmp_path / "cache", "s3://models/m.tgz")
