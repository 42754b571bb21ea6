"""Makes a release in dist/: source archives, wheels, bill of materials, checksums. The same commit gives the same bytes.

    git archive HEAD ──► README without links to files ──► source archive, one date and one owner ──► wheel ──► twine check

Everything is built twice, in two folders, and compared. `SOURCE_DATE_EPOCH` is the date of all files, by default the commit's.
"""

import gzip
import hashlib
import io
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path

from bill_of_materials import bill_of_materials

ROOT = Path(__file__).resolve().parents[1]
DIST = ROOT / "dist"
SOURCES = (".", "client/compat")
BUILD = (sys.executable, "-m", "build", "--no-isolation")


def main() -> None:
    """Make the release."""
    os.environ.setdefault("SOURCE_DATE_EPOCH", _run("git", "log", "-1", "--format=%ct").strip())
    os.environ["PYTHONHASHSEED"] = "0"
    with tempfile.TemporaryDirectory() as first, tempfile.TemporaryDirectory() as second:
        made, again = (_build(Path(folder)) for folder in (first, second))
        for one, other in zip(made, again, strict=True):
            if one.read_bytes() != other.read_bytes():
                raise SystemExit(f"{one.name} has other bytes when it is built again")
        shutil.rmtree(DIST, ignore_errors=True)
        DIST.mkdir()
        for file in made:
            shutil.copy(file, DIST)
    version = next(DIST.glob("cluster_serving-*.tar.gz")).name.removesuffix(".tar.gz").rpartition("-")[2]
    bill = bill_of_materials(ROOT, version, int(os.environ["SOURCE_DATE_EPOCH"]))
    (DIST / f"cluster_serving-{version}.cdx.json").write_text(bill)
    _run(
        sys.executable,
        "-m",
        "twine",
        "check",
        "--strict",
        *map(str, sorted(DIST.glob("*.*z"))),
        *map(str, DIST.glob("*.whl")),
    )
    sums = [f"{hashlib.sha256(file.read_bytes()).hexdigest()}  {file.name}\n" for file in sorted(DIST.iterdir())]
    (DIST / "SHA256SUMS").write_text("".join(sums))
    print("".join(f"dist/{file.name}  {file.stat().st_size:,} bytes\n" for file in sorted(DIST.iterdir())), end="")


def _build(folder: Path) -> list[Path]:
    """Build source archives and wheels of the commit in a folder, and return their paths."""
    tree, made = folder / "tree", folder / "made"
    tree.mkdir()
    with tarfile.open(fileobj=io.BytesIO(_bytes("git", "-c", "tar.umask=022", "archive", "HEAD"))) as archive:
        _unpack(archive, tree)
    readme = tree / "README.md"
    readme.write_text(_alone(readme.read_text()))
    made.mkdir()
    for source in SOURCES:
        place = folder / "sdist" / (Path(source).name or "main")
        _run(*BUILD, "--sdist", "--outdir", str(place), str(tree / source))
        (built,) = place.iterdir()
        archive_path = made / built.name
        archive_path.write_bytes(_with_one_date(built))
        with tarfile.open(archive_path) as archive:
            _unpack(archive, folder)
        _run(*BUILD, "--wheel", "--outdir", str(made), str(folder / built.name.removesuffix(".tar.gz")))
    return sorted(made.iterdir())


def _unpack(archive: tarfile.TarFile, folder: Path) -> None:
    archive.extraction_filter = getattr(tarfile, "tar_filter", None)  # from Python 3.11.4 on
    archive.extractall(folder)  # noqa: S202 - the commit's own files


def _alone(readme: str) -> str:
    """Return the README for readers without the repository: without pictures and links of relative paths."""
    without_pictures = re.sub(r"^!\[[^\]]*\]\((?!https?:)[^)]*\)\n+", "", readme, flags=re.MULTILINE)
    return re.sub(r"\[([^\]]+)\]\((?!https?:|#)[^)]*\)", r"\1", without_pictures)


def _with_one_date(path: Path) -> bytes:
    """Return a source archive again, with members in order, of one date, owner and mode."""
    date_s = int(os.environ["SOURCE_DATE_EPOCH"])
    packed = io.BytesIO()
    with (
        tarfile.open(path) as before,
        gzip.GzipFile(filename="", fileobj=packed, mode="wb", mtime=date_s) as zipped,
        tarfile.open(fileobj=zipped, mode="w", format=tarfile.GNU_FORMAT) as after,
    ):
        for member in sorted(_files(before), key=lambda each: each.name):
            plain = tarfile.TarInfo(member.name)
            plain.size, plain.mtime, plain.mode = member.size, date_s, 0o755 if member.mode & 0o100 else 0o644
            after.addfile(plain, before.extractfile(member))
    return packed.getvalue()


def _files(archive: tarfile.TarFile) -> Iterator[tarfile.TarInfo]:
    return (member for member in archive if member.isfile())


def _run(*command: str) -> str:
    return _bytes(*command).decode()


def _bytes(*command: str) -> bytes:
    done = subprocess.run(command, cwd=ROOT, capture_output=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)}\n{done.stdout.decode()[-4000:]}{done.stderr.decode()[-4000:]}")
    return done.stdout


if __name__ == "__main__":
    main()
