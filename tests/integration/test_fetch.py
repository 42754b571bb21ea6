"""Models from a web server into the cache."""

import base64
import errno
import fcntl
import io
import os
import subprocess
import sys
import tarfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from cluster_serving.client.servers.process.exit_codes import ModelFault
from cluster_serving.node.fetching.cache import Entry
from cluster_serving.node.fetching.fetch import Request, fetch
from cluster_serving.node.fetching.progress import GivenUp, Progress
from cluster_serving.node.fetching.under_way import UnderWay
from support.certificates import write_certificates
from support.file_server import FileServer, Page, file_server
from support.wait import wait_until


def archive_of(*members: tarfile.TarInfo) -> bytes:
    """Of links, and files without content."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        for member in members:
            tar.addfile(member)
    return buffer.getvalue()


def link(name: str, target: str) -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.type, member.linkname = tarfile.SYMTYPE, target
    return member


def archive(name: str = "model/m.onnx", content: bytes = b"weights") -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        member = tarfile.TarInfo(name)
        member.size = len(content)
        tar.addfile(member, io.BytesIO(content))
    return buffer.getvalue()


@pytest.fixture
def server() -> Iterator[FileServer]:
    with file_server() as server:
        yield server


class Fetcher:
    """Fetches into the cache of one job."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.told: list[str] = []

    def __call__(self, url: str, checksum: str = "", max_bytes: int = 1 << 30) -> Entry:
        """Fetch it."""
        request = Request(url, checksum, self.directory, max_bytes)
        return fetch(request, Progress(self.told.append, threading.Event(), every_s=0))

    def fails(self, url: str, checksum: str = "", max_bytes: int = 1 << 30) -> str:
        """Expect the fetch to fail and to leave nothing, and return the reason."""
        with pytest.raises(ModelFault) as raised:
            self(url, checksum, max_bytes)
        self.left_nothing()
        return str(raised.value)

    def left_nothing(self) -> None:
        """Neither an entry nor half of one is there."""
        assert list(self.directory.iterdir()) == []


@pytest.fixture
def fetcher(tmp_path: Path) -> Fetcher:
    return Fetcher(tmp_path / "cache")


def files(entry: Entry) -> dict[str, bytes]:
    found = [path for path in entry.path.rglob("*") if path.is_file()]
    return {path.relative_to(entry.path).as_posix(): path.read_bytes() for path in found}


def test_an_archive_with_a_checksum_is_fetched_once(server: FileServer, fetcher: Fetcher) -> None:
    checksum = server.put("/models/m.tar.gz", archive())

    first, second = (fetcher(server.url("/models/m.tar.gz"), checksum) for _ in range(2))

    assert files(first) == {"m.onnx": b"weights"}  # without the one folder around it
    assert second.path == first.path
    assert first.path.name.startswith("m.tar.gz-")
    assert server.asked == [("/models/m.tar.gz", "")]
    assert any(line.startswith("fetching http://localhost") and line.endswith("B") for line in fetcher.told)
    assert any(line.startswith("fetched: ") for line in fetcher.told)


def test_a_link_is_not_the_folder_around_everything(server: FileServer, fetcher: Fetcher) -> None:
    """One that leads to itself would be the cache, whose lock is taken."""
    server.put("/m.tar.gz", archive_of(link("model", ".")))

    entry = fetcher(server.url("/m.tar.gz"))

    assert not entry.path.is_symlink()
    assert [path.name for path in entry.path.iterdir()] == ["model"]


def test_a_model_file_is_taken_as_it_is(server: FileServer, fetcher: Fetcher) -> None:
    server.put("/M.ONNX", b"PK\3\4 looks like a zip")

    assert files(fetcher(server.url("/M.ONNX"))) == {"M.ONNX": b"PK\3\4 looks like a zip"}


def test_without_a_checksum_the_server_tells_what_is_new(server: FileServer, fetcher: Fetcher) -> None:
    server.put("/m.tar.gz", archive())
    url = server.url("/m.tar.gz")

    first, same = fetcher(url), fetcher(url)
    server.put("/m.tar.gz", archive(content=b"better"))
    other = fetcher(url)

    assert same.path == first.path
    assert len([line for line in fetcher.told if line.startswith("fetching")]) == 2
    assert files(other) == {"m.onnx": b"better"}
    assert files(first) == {"m.onnx": b"weights"}


def test_without_any_version_the_content_tells(server: FileServer, fetcher: Fetcher) -> None:
    server.pages["/m.tar.gz"] = Page(archive(), etag=False)
    url = server.url("/m.tar.gz")

    first, same = fetcher(url), fetcher(url)

    assert same.path == first.path
    assert len(server.asked) == 2


def test_signed_urls_of_one_file_are_one_entry(server: FileServer, fetcher: Fetcher) -> None:
    checksum = server.put("/m d.tar.gz", archive())
    server.pages["/m%20d.tar.gz"] = server.pages["/m d.tar.gz"]

    first = fetcher(server.url("/m%20d.tar.gz?X-Sig=a%2Fb"), checksum)
    second = fetcher(server.url("/m%20d.tar.gz?X-Sig=other"), checksum)

    assert first.path == second.path
    assert server.asked == [("/m%20d.tar.gz?X-Sig=a%2Fb", "")]
    assert "X-Sig" not in "".join(fetcher.told)


def test_a_login_goes_to_its_server_only(server: FileServer, fetcher: Fetcher) -> None:
    with file_server() as other:
        other.put("/m.tar.gz", archive())
        server.pages["/m"] = Page(
            status=302, headers={"Location": other.url("/m.tar.gz").replace("localhost", "127.0.0.1")}
        )

        entry = fetcher(server.url("/m", login="u:p%40ss@"))

        assert files(entry) == {"m.onnx": b"weights"}
        assert server.asked == [("/m", f"Basic {base64.b64encode(b'u:p@ss').decode()}")]
        assert other.asked == [("/m.tar.gz", "")]
    assert "p%40ss" not in "".join(fetcher.told)


@pytest.mark.parametrize("etag", [True, False])
def test_a_connection_that_breaks_is_not_the_end(server: FileServer, fetcher: Fetcher, etag: bool) -> None:
    content = os.urandom(3 << 20)
    checksum = server.put("/m.onnx", content)
    server.pages["/m.onnx"] = Page(content, etag=etag, cut=2)

    entry = fetcher(server.url("/m.onnx"), checksum)

    assert files(entry) == {"m.onnx": content}
    assert len(server.asked) == 3


def test_content_that_changes_on_the_way_is_kept_under_its_own_version(server: FileServer, fetcher: Fetcher) -> None:
    old, new = os.urandom(3 << 20), os.urandom(3 << 20)
    server.pages["/m.onnx"] = Page(old, cut=1, then=Page(new))
    url = server.url("/m.onnx")

    first = fetcher(url)
    server.put("/m.onnx", old)
    back = fetcher(url)

    assert files(first) == {"m.onnx": new}
    assert files(back) == {"m.onnx": old}


def test_content_that_changes_each_time_is_told(server: FileServer, fetcher: Fetcher) -> None:
    page = Page()
    for _ in range(100):  # far more than requests: obstore repeats some where the machine is busy
        page = Page(os.urandom(100_000), cut=1, then=page)
    server.pages["/m.onnx"] = page

    assert fetcher.fails(server.url("/m.onnx")).endswith("changes while it is fetched: try again when it is complete")


def test_a_wrong_checksum(server: FileServer, fetcher: Fetcher) -> None:
    checksum = server.put("/m.tar.gz", archive())
    wanted = f"sha256:{'0' * 64}"

    assert fetcher.fails(server.url("/m.tar.gz"), wanted) == (
        f"{server.url('/m.tar.gz')} is not what modelChecksum says: it is {checksum}, and should be {wanted}"
    )


@pytest.mark.parametrize(
    ("page", "why"),
    [
        (Page(status=404), "is not there (404)"),
        (Page(status=403), "may not be read: access is denied (403)"),
        (Page(status=401), "may not be read without the right user and password (401)"),
        (Page(status=410), "cannot be fetched: the server answers 410 Gone"),
        (
            Page(status=302, headers={"Location": "file:///etc/passwd"}),
            "cannot be fetched: the server answers 302 Found",
        ),
        (
            Page(b"x", headers={"Content-Length": ""}),
            "cannot be fetched: the server does not tell how long it is (Content-Length)",
        ),
        (Page(b"<html>"), "is neither a model file nor an archive"),
        (Page(archive("../m.onnx")), "is refused: it would write outside of the model's directory"),
        # What it leads to is in the archive, and outside when the folders around the model have been taken away.
        (
            Page(archive_of(tarfile.TarInfo("a/b/m.onnx"), link("a/b/c", "../../.x"), tarfile.TarInfo(".x"))),
            "is refused: 'c' is a link that leads out of the model's directory, or nowhere",
        ),
        (Page(archive_of(tarfile.TarInfo(f"{'n' * 300}\udcff"))), "cannot be kept in "),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_cannot_be_had_is_told_in_one_sentence(server: FileServer, fetcher: Fetcher, page: Page, why: str) -> None:
    server.pages["/m.tar.gz"] = page

    told = fetcher.fails(server.url("/m.tar.gz?token=geheim", login="u:geheim@"))

    assert told.startswith(f"{server.url('/m.tar.gz', login='***@')}?*** {why}")
    assert "geheim" not in told
    assert "\n" not in told


def test_nobody_there(fetcher: Fetcher) -> None:
    url = "http://localhost:1/m.tar.gz"

    assert fetcher.fails(url) == f"{url} cannot be reached: Connection refused"
    assert "cannot be reached: failed to lookup address" in fetcher.fails("http://nowhere.invalid/m.tar.gz")


def test_too_large_is_refused_before_it_is_fetched(server: FileServer, fetcher: Fetcher) -> None:
    server.pages["/m.onnx"] = Page(bytes(3_000_000), go_on=threading.Event())

    assert fetcher.fails(server.url("/m.onnx"), max_bytes=2_000_000).endswith(
        "is refused: it has 3 MB, and modelMaxBytes is 2 MB"
    )


def test_https_wants_a_trusted_certificate(tmp_path: Path, fetcher: Fetcher) -> None:
    write_certificates(tmp_path)
    with file_server(tmp_path) as server:
        server.put("/m.tar.gz", archive())
        url = server.url("/m.tar.gz")

        told = fetcher.fails(url)
        trusting = fetch_elsewhere(url, fetcher.directory, SSL_CERT_FILE=str(tmp_path / "cert.pem"))

    assert "has a certificate that is not trusted here" in told
    assert trusting.returncode == 0, trusting.stderr


def test_https_does_not_lead_to_http(tmp_path: Path, server: FileServer, fetcher: Fetcher) -> None:
    server.put("/m.tar.gz", archive())
    write_certificates(tmp_path)
    with file_server(tmp_path) as secure:
        secure.pages["/m.tar.gz"] = Page(status=302, headers={"Location": server.url("/m.tar.gz")})

        done = fetch_elsewhere(secure.url("/m.tar.gz"), fetcher.directory, SSL_CERT_FILE=str(tmp_path / "cert.pem"))

    assert done.returncode != 0
    assert len(secure.asked) > 0
    assert server.asked == []


_ELSEWHERE = """
import sys, threading
from pathlib import Path
from cluster_serving.node.fetching.fetch import Request, fetch
from cluster_serving.node.fetching.progress import Progress
fetch(Request(sys.argv[1], "", Path(sys.argv[2]), 1 << 30), Progress(print, threading.Event()))
"""


def fetch_elsewhere(url: str, directory: Path, **environ: str) -> subprocess.CompletedProcess[str]:
    """Fetch in another process."""
    command = [sys.executable, "-c", _ELSEWHERE, url, str(directory)]
    return subprocess.run(command, env=os.environ | environ, capture_output=True, text=True, timeout=120, check=False)


def test_a_fetch_that_is_killed_leaves_nothing_half(server: FileServer, fetcher: Fetcher) -> None:
    content = os.urandom(1 << 20)
    page = server.pages["/m.onnx"] = Page(content, go_on=threading.Event())
    url = server.url("/m.onnx")
    process = subprocess.Popen(
        [sys.executable, "-c", _ELSEWHERE, url, str(fetcher.directory)], stdout=subprocess.DEVNULL
    )
    wait_until(lambda: list(fetcher.directory.glob(".new/fetched/m.onnx")), "it has begun")

    process.kill()
    process.wait()
    page.go_on = None

    assert not [path for path in fetcher.directory.iterdir() if not path.name.startswith(".")]
    assert files(fetcher(url)) == {"m.onnx": content}
    assert [path.name for path in fetcher.directory.iterdir()] == [fetcher(url).path.name]


def test_two_nodes_fetch_it_once(server: FileServer, fetcher: Fetcher) -> None:
    go_on = threading.Event()
    checksum = server.put("/m.onnx", b"weights" * 1000)
    server.pages["/m.onnx"].go_on = go_on
    request = Request(server.url("/m.onnx"), checksum, fetcher.directory, 1 << 30)

    first, second = UnderWay(request), UnderWay(request)
    news: list[str] = []

    def one_waits() -> bool:
        news.extend([*first.news(), *second.news()])
        return "waiting for another node that fetches a model" in news

    wait_until(one_waits, "one waits")
    go_on.set()

    assert first.wait(news.append).path == second.wait(news.append).path
    assert len(server.asked) == 1


def test_old_entries_go_and_those_in_use_stay(server: FileServer, fetcher: Fetcher) -> None:
    entries: list[Entry] = []
    for number in range(5):
        server.put("/m.onnx", b"weights" * (number + 1))
        entries.append(fetcher(server.url("/m.onnx")))
        if number != 1:
            entries[number].release()

    there = {number for number, entry in enumerate(entries) if entry.path.exists()}

    assert there == {1, 3, 4}


def test_who_gives_up_ends_soon(server: FileServer, fetcher: Fetcher) -> None:
    go_on = threading.Event()
    server.pages["/m.onnx"] = Page(bytes(5 << 20), go_on=go_on)
    fetch_ = UnderWay(Request(server.url("/m.onnx"), "", fetcher.directory, 1 << 30))
    wait_until(lambda: list(fetcher.directory.glob(".new/fetched/m.onnx")), "it has begun")

    fetch_.give_up()
    go_on.set()

    wait_until(lambda: fetch_.done, "it has ended")
    with pytest.raises(GivenUp):
        fetch_.result()
    fetcher.left_nothing()


def test_who_gives_up_what_has_come_keeps_nothing_in_the_cache(server: FileServer, fetcher: Fetcher) -> None:
    server.put("/m.onnx", b"x")
    fetch_ = UnderWay(Request(server.url("/m.onnx"), "", fetcher.directory, 1 << 30))
    wait_until(lambda: fetch_.done, "it has come")

    fetch_.give_up()

    other = os.open(fetch_.result().path, os.O_RDONLY)
    fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.close(other)


_LIMITED = """
import resource, signal
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))
"""


def test_no_room(server: FileServer, fetcher: Fetcher) -> None:
    """A limit of the process on its files stands for the end of the disk: both end a write."""
    server.put("/m.onnx", os.urandom(2 << 20))
    command = [sys.executable, "-c", f"{_LIMITED}{_ELSEWHERE}", server.url("/m.onnx"), str(fetcher.directory)]

    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)

    assert f"cannot be kept in {fetcher.directory}" in done.stderr
    assert os.strerror(errno.EFBIG) in done.stderr
    fetcher.left_nothing()


def test_a_cache_that_cannot_be_made(server: FileServer, tmp_path: Path) -> None:
    server.put("/m.onnx", b"x")
    (tmp_path / "cache").write_bytes(b"")

    with pytest.raises(ModelFault, match=f"cannot be kept in {tmp_path / 'cache'}: File exists"):
        Fetcher(tmp_path / "cache")(server.url("/m.onnx"))


def test_an_entry_is_in_use_until_it_is_released(server: FileServer, fetcher: Fetcher) -> None:
    server.put("/m.onnx", b"x")
    entry = fetcher(server.url("/m.onnx"))
    other = os.open(entry.path, os.O_RDONLY)

    with pytest.raises(BlockingIOError):
        fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
    entry.release()
    entry.release()
    fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.close(other)
