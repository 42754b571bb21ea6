"""Programs that a test needs beside Python and Redis."""

import os
import shutil

import pytest

_PACKAGES = {"chromium": "chromium", "curl": "curl", "openssl": "openssl"}


def program(name: str) -> str:
    """Return the path of a program; without it the test is skipped, and in CI, which installs them all, it fails."""
    path = shutil.which(name)
    if path is not None:
        return path
    wanted = f"{name} is not installed: apt install {_PACKAGES[name]}"
    if "CI" in os.environ:
        pytest.fail(wanted)
    pytest.skip(wanted)
