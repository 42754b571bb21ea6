"""An embedded Redis whose append-only file is damaged, and mended as its message says."""

import re
import shlex
import subprocess
from pathlib import Path


def damage(directory: Path, value: bytes) -> Path:
    """Make the length of a value in the append-only file of a Redis wrong, in place; the file."""
    right, wrong = (b"$%d\r\n%s" % (len(value) + more, value) for more in (0, 2))
    for file in [*directory.glob("appendonlydir/*.aof"), *directory.glob("appendonly.aof")]:
        with file.open("r+b") as stream:
            at = stream.read().find(right)
            if at >= 0:
                stream.seek(at)
                stream.write(wrong)
                return file.resolve()
    raise AssertionError(f"no append-only file in {directory} has {value!r}")


def mend(told: str) -> Path:
    """Run the command that a message names; the file that it says is damaged."""
    file, command = re.findall(r"append-only file (.+) of the embedded Redis is damaged.* with: (.+)", told)[0]
    subprocess.run(shlex.split(command), input=b"y\n", stdout=subprocess.DEVNULL, check=True)
    return Path(file)
