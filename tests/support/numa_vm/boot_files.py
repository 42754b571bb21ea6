"""Boot files of the machine: Debian's kernel, unpacked and not installed, and a first file system of busybox and some modules."""

import re
import shutil
import subprocess
import tarfile
from pathlib import Path
from typing import Final, NamedTuple

_HERE: Final = Path(__file__).parent
_PATIENCE_S: Final = 300.0
_MODULES: Final = (
    "virtio_ring",
    "virtio",
    "virtio_pci_legacy_dev",
    "virtio_pci_modern_dev",
    "virtio_pci",
    "netfs",
    "fscache",
    "9pnet",
    "9pnet_virtio",
    "9p",
)
"""For a file system of the host: each after those that it needs."""


class BootFiles(NamedTuple):
    """Paths for qemu."""

    kernel: Path
    first_files: Path


def prepare(cache: Path, directory: Path) -> BootFiles:
    """Both; what the `cache` has is not fetched again (70 MB), the rest is made in an empty `directory`."""
    kernel = cache / "vmlinuz"
    if not kernel.exists():
        cache.mkdir(parents=True, exist_ok=True)
        _unpack(_fetched(directory), cache)
    return BootFiles(kernel, _packed(cache, directory))


def _fetched(directory: Path) -> Path:
    """The package of the kernel that this Debian has now."""
    said = _said("apt-cache", "depends", "linux-image-amd64", cwd=directory)
    found = re.search(r"Depends: (linux-image-\S+)", said)
    assert found, f"no linux-image-amd64: run apt-get update\n{said}"
    _said("apt-get", "download", found[1], cwd=directory)
    return next(directory.glob("linux-image-*.deb"))


def _unpack(package: Path, cache: Path) -> None:
    """Keep the modules and, last, the kernel."""
    command = ("dpkg-deb", "--fsys-tarfile", str(package))
    with (
        subprocess.Popen(command, stdout=subprocess.PIPE) as unpacking,
        tarfile.open(fileobj=unpacking.stdout, mode="r|") as files,
    ):
        for member in files:
            path, content = Path(member.name), files.extractfile(member) if member.isfile() else None
            if content and path.suffix == ".ko" and path.stem in _MODULES:
                (cache / path.name).write_bytes(content.read())
            if content and path.name.startswith("vmlinuz-"):
                (cache / "kernel").write_bytes(content.read())
    (cache / "kernel").rename(cache / "vmlinuz")


def _packed(cache: Path, directory: Path) -> Path:
    root = directory / "first_files"
    (root / "bin").mkdir(parents=True)
    shutil.copy(shutil.which("busybox") or "", root / "bin" / "busybox")
    for module in _MODULES:
        shutil.copy(cache / f"{module}.ko", root)
    init = root / "init"
    init.write_text((_HERE / "init.sh").read_text().replace("MODULES", " ".join(_MODULES)))
    init.chmod(0o755)
    names = "\n".join(str(path.relative_to(root)) for path in root.rglob("*"))
    packed = directory / "first_files.cpio"
    _said("busybox", "cpio", "-o", "-H", "newc", "-F", str(packed), cwd=root, told=names)
    return packed


def _said(*command: str, cwd: Path, told: str = "") -> str:
    done = subprocess.run(
        command, cwd=cwd, input=told, capture_output=True, text=True, timeout=_PATIENCE_S, check=False
    )
    assert done.returncode == 0, f"{' '.join(command)}:\n{done.stdout[-1000:]}{done.stderr[-2000:]}"
    return done.stdout
