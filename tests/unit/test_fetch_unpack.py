"""Archives of models: those that are taken apart, and those that are refused."""

import bz2
import gzip
import io
import lzma
import struct
import sys
import tarfile
import threading
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from cluster_serving.node.fetching.errors import FetchError
from cluster_serving.node.fetching.progress import GivenUp, Progress, readable
from cluster_serving.node.fetching.unpack import check_links, unpack

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

MANY = 1 << 30


def take_apart(tmp_path: Path, content: bytes, max_bytes: int = MANY) -> Path:
    archive = tmp_path / "archive"
    archive.write_bytes(content)
    unpack(archive, tmp_path / "model", max_bytes, Progress(lambda text: None, threading.Event()))
    return tmp_path / "model"


def tar_of(*members: tuple[tarfile.TarInfo, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for member, content in members:
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return buffer.getvalue()


def file(name: str, content: bytes = b"weights") -> tuple[tarfile.TarInfo, bytes]:
    return tarfile.TarInfo(name), content


def special(name: str, kind: bytes, target: str = "") -> tuple[tarfile.TarInfo, bytes]:
    member = tarfile.TarInfo(name)
    member.type, member.linkname = kind, target
    return member, b""


def zip_of(*members: tuple[zipfile.ZipInfo | str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as opened:
        for member, content in members:
            opened.writestr(member, content)
    return buffer.getvalue()


PLAIN = tar_of(
    file("model/a.onnx"),
    file("model/b/c.bin", b"more"),
    special("model/link", tarfile.SYMTYPE, "a.onnx"),
    special("model/same", tarfile.LNKTYPE, "model/a.onnx"),
)


@pytest.mark.parametrize(
    "compress",
    [bytes, gzip.compress, bz2.compress, lzma.compress, zstd.compress],
    ids=["tar", "gz", "bz2", "xz", "zst"],
)
def test_every_kind_of_tar(tmp_path: Path, compress: Callable[[bytes], bytes]) -> None:
    model = take_apart(tmp_path, compress(PLAIN))

    assert (model / "model" / "a.onnx").read_bytes() == b"weights"
    assert (model / "model" / "b" / "c.bin").read_bytes() == b"more"
    assert (model / "model" / "link").read_bytes() == b"weights"
    assert (model / "model" / "same").samefile(model / "model" / "a.onnx")
    check_links(model)


def test_zip(tmp_path: Path) -> None:
    model = take_apart(tmp_path, zip_of(("model/a.onnx", b"weights"), ("model/b/c.bin", b"more")))

    assert (model / "model" / "a.onnx").read_bytes() == b"weights"
    assert (model / "model" / "b" / "c.bin").read_bytes() == b"more"


def link_in_zip() -> zipfile.ZipInfo:
    member = zipfile.ZipInfo("link")
    member.external_attr = 0o120777 << 16
    return member


def claiming(name: str, **values: float) -> tuple[tarfile.TarInfo, bytes]:
    """A member whose extended header says something else of it."""
    member = tarfile.TarInfo(name)
    member.pax_headers = {key: str(value) for key, value in values.items()}
    return member, b"x"


def too_long_to_follow(*members: tuple[tarfile.TarInfo, bytes]) -> bytes:
    """Members behind `out`, a link that leads three directories up by a way which `tarfile.data_filter` cannot follow to its end.

    The files of CVE-2025-4517: https://github.com/google/security-research/security/advisories/GHSA-hgqp-3mmf-7h8f
    """
    steps, way, path = "abcdefghijklmnop", list[tuple[tarfile.TarInfo, bytes]](), ""
    for step in steps:
        way += [special(f"{path}{'d' * 247}", tarfile.DIRTYPE), special(f"{path}{step}", tarfile.SYMTYPE, "d" * 247)]
        path += f"{'d' * 247}/"
    last = f"{'/'.join(steps)}/{'l' * 254}"
    way += [special(last, tarfile.SYMTYPE, "../" * len(steps)), special("out", tarfile.SYMTYPE, f"{last}/../../..")]
    return tar_of(*way, *members)


def sparse(stored: int) -> bytes:
    """A file of 10 bytes, for which so many are stored: the map says that all of them lie at its beginning."""
    member = tarfile.TarInfo("sparse")
    member.type, member.size = tarfile.GNUTYPE_SPARSE, stored
    header = bytearray(member.tobuf(tarfile.GNU_FORMAT))
    header[386:410] = b"%011o\0%011o\0" % (0, stored)
    header[483:495] = b"%011o\0" % 10
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header)
    return bytes(header) + bytes(stored) + bytes(1024)


# The name of the next member, which is such a name again.
_ENDLESS = special("x", tarfile.GNUTYPE_LONGNAME)[0].tobuf()


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (tar_of(file("/etc/evil")), "it would write outside of the model's directory, to '/etc/evil'"),
        (tar_of(file("a/../../evil")), "it would write outside"),
        (tar_of(special("link", tarfile.SYMTYPE, "/etc/passwd")), "is refused: 'link' is a link to an absolute path"),
        (tar_of(special("link", tarfile.SYMTYPE, "../../out")), "would link to"),
        (tar_of(special("link", tarfile.LNKTYPE, "../../out")), "would link to"),
        (tar_of(special("d", tarfile.SYMTYPE, ".."), file("d/evil")), "would link to"),
        (
            tar_of(special("d", tarfile.SYMTYPE, "s"), special("s", tarfile.DIRTYPE), file("d/a")),
            "'d/a' goes through a link",
        ),
        (tar_of(special("a", tarfile.SYMTYPE, "b"), file("a")), "'a' goes through a link"),
        (tar_of(special("a", tarfile.SYMTYPE, "b"), special("h", tarfile.LNKTYPE, "a")), "'a' goes through a link"),
        (too_long_to_follow(file("out/evil")), "goes through a link"),
        (too_long_to_follow(special("a", tarfile.LNKTYPE, "out/archive")), "goes through a link"),
        (tar_of(special("zero", tarfile.CHRTYPE)), "is refused: 'zero' is a special file"),
        (tar_of(special("pipe", tarfile.FIFOTYPE)), "is refused: 'pipe' is a special file"),
        (zip_of(("../evil", b"x")), "it would write outside"),
        (zip_of(("/evil", b"x")), "it would write outside"),
        (zip_of((link_in_zip(), b"/etc/passwd")), "'link' is a link or a device"),
        (b"<html>not found</html>" * 30, "is neither a model file nor an archive (.tar"),
        (b"", "is neither a model file nor an archive"),
        (gzip.compress(PLAIN)[:60], "is a broken archive"),
        (zstd.compress(PLAIN)[:60], "is a broken archive"),
        (zip_of(("a", b"x" * 10_000))[:60], "is a broken archive"),
        (gzip.compress(b"no tar" * 1000), "is compressed, but holds no .tar: give the model itself"),
        (zstd.compress(b"a bare model"), "is compressed, but holds no .tar"),
        (b"\x1f\x8b\x09" + bytes(500), "is a broken archive: Unknown compression method"),
        (tar_of(claiming("a", size=-1_000_000)), "is a broken archive: 'a' has -1000000 bytes"),
        (tar_of(claiming("a", mtime=1e30)), "is a broken archive: timestamp out of range"),
        (b"".join([_ENDLESS] * 3000), "is a broken archive: maximum recursion depth exceeded"),
    ],
)
def test_refused(tmp_path: Path, content: bytes, why: str) -> None:
    with pytest.raises(FetchError) as raised:
        take_apart(tmp_path, content)

    assert why in str(raised.value)
    outside = {path.name for path in tmp_path.iterdir()} | {path.name for path in tmp_path.parent.iterdir()}
    assert outside.isdisjoint({"evil", "out"})


def tar_gz(body: bytes) -> bytes:
    return gzip.compress(tar_of(file("a", body)))


def zipped(body: bytes) -> bytes:
    return zip_of(("a", body))


@pytest.mark.parametrize("pack", [tar_gz, zipped])
def test_a_bomb_is_refused_before_it_fills_the_disk(tmp_path: Path, pack: Callable[[bytes], bytes]) -> None:
    content = pack(bytes(2_000_000))

    with pytest.raises(FetchError, match="unpacked it is larger than modelMaxBytes, 1 MB"):
        take_apart(tmp_path, content, max_bytes=1_000_000)

    assert len(content) < 10_000
    assert not list((tmp_path / "model").iterdir())


def test_what_a_sparse_file_says_of_its_size_is_not_believed(tmp_path: Path) -> None:
    with pytest.raises(FetchError, match="'sparse' is sparse; pack it with tar without -S"):
        take_apart(tmp_path, gzip.compress(sparse(2_000_000)), max_bytes=1_000_000)


@pytest.mark.parametrize("target", ["../outside", "nowhere", "loop", "b/../../outside"])
def test_links_out_of_the_directory(tmp_path: Path, target: str) -> None:
    (tmp_path / "model" / "b").mkdir(parents=True)
    (tmp_path / "outside").touch()
    (tmp_path / "model" / "b" / "fine").symlink_to("../b")
    check_links(tmp_path / "model")
    (tmp_path / "model" / "loop").symlink_to(target)

    with pytest.raises(FetchError, match="'loop' is a link that leads out of the model's directory, or nowhere"):
        check_links(tmp_path / "model")


def test_a_list_of_members_that_would_fill_the_memory_is_refused(tmp_path: Path) -> None:
    """The list of a .zip, at its end: its size is all that is looked at."""
    size = 33 << 20
    content = b"PK\3\4" + bytes(size) + struct.pack("<4sHHHHIIH", b"PK\5\6", 0, 0, 1, 1, size, 4, 0)

    with pytest.raises(FetchError, match="is refused: a header has 346"):
        take_apart(tmp_path, content)


def test_a_header_that_would_fill_the_memory_is_refused(tmp_path: Path) -> None:
    """The path of a member may be as long as its archive says, and tarfile reads it at once."""
    member = special("x", tarfile.GNUTYPE_LONGNAME)[0]
    member.size = 2 << 20
    content = member.tobuf() + bytes(2 << 20)

    with pytest.raises(FetchError, match="is refused: a header has 2097"):
        take_apart(tmp_path, gzip.compress(content))


def test_more_files_than_any_model_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cluster_serving.node.fetching.unpack._MOST_MEMBERS", 2)

    with pytest.raises(FetchError, match="more than 2 files"):
        take_apart(tmp_path, tar_of(file("a"), file("b"), file("c")))


def test_who_gives_up_waits_for_nothing(tmp_path: Path) -> None:
    (tmp_path / "archive").write_bytes(PLAIN)
    given_up = threading.Event()
    given_up.set()

    with pytest.raises(GivenUp):
        unpack(tmp_path / "archive", tmp_path / "model", MANY, Progress(lambda text: None, given_up))


def test_progress_is_told_now_and_then() -> None:
    told: list[str] = []
    often = Progress(told.append, threading.Event(), every_s=0)
    seldom = Progress(told.append, threading.Event(), every_s=1000)

    often.advance(1_500_000, 2_000_000_000, "fetched")
    seldom.advance(1, 2, "fetched")

    assert told == ["fetched: 1.5 MB of 2 GB"]


@pytest.mark.parametrize(
    ("size", "text"), [(0, "0 B"), (999, "999 B"), (1000, "1 kB"), (999_600, "1000 kB"), (68719476736, "68.7 GB")]
)
def test_bytes_for_people(size: int, text: str) -> None:
    assert readable(size) == text
