"""A program that uses the client imports the packages of the bare install, and no more."""

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parents[2]
# redis-py and pyarrow import these where they are installed.
OPTIONAL = ("cloudpickle", "cryptography", "opentelemetry", "requests", "jwt", "OpenSSL", "typing_extensions", "psutil")
PROGRAM = f"""
import sys
for package in {OPTIONAL}:
    sys.modules[package] = None
import numpy as np
from cluster_serving.client import *
from cluster_serving.client.errors import ClusterServingError
for queue in InputQueue(port=1, patience_s=0), InputQueue(port=1, patience_s=0, dialect="original"):
    for call in lambda: queue.predict({{"x": np.zeros(3), "photo": b"JPEG"}}), queue.output_queue.dequeue:
        try:
            call()
        except ClusterServingError:
            pass
origins = {{getattr(module, "__file__", None) or "" for name, module in sys.modules.items() if "." not in name and module}}
print(*{{origin.split("site-packages/")[1].split("/")[0] for origin in origins if "site-packages/" in origin}})
"""


@pytest.mark.usefixtures("unmeasured")
def test_a_program_imports_what_the_bare_install_has() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    bare = {Requirement(each).name for each in project["dependencies"]}

    ran = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)

    imported = {name for name in ran.stdout.split() if not name.startswith(("_", "__editable__"))}
    of_redis = {"hiredis"} if sys.version_info >= (3, 11, 3) else {"hiredis", "async_timeout"}
    assert imported - {"cluster_serving"} == bare | of_redis
