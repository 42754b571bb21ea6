"""README, tutorials, how-to pages and examples: each block of code runs in its order, as it stands there.

Pages run in a network of their own, where Redis and HTTP have their usual ports. Processes that a page leaves end with it.
"""

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import msgspec
import pytest

from support.pages import Ran

ROOT = Path(__file__).resolve().parents[2]
PAGES = [
    ROOT / "README.md",
    *sorted((ROOT / "docs" / "tutorials").glob("*-*.md")),
    ROOT / "docs" / "examples" / "README.md",
]
_ALONE = ["unshare", "--map-root-user", "--net", "--pid", "--fork", "--mount-proc", "--kill-child"]
_REAPER = ["bash", "-c", '"$@"; exit $?', "bash"]  # process 1, which takes the exit codes of processes without a parent
_PAGES_S = 580

pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Ran]:
    """Each page by its path."""
    if subprocess.run([*_ALONE, "true"], capture_output=True, check=False).returncode != 0:
        pytest.skip("this user may not make namespaces")
    environment = os.environ | {
        "CLUSTER_SERVING_HOME": str(tmp_path_factory.mktemp("home")),
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT / "tests"),
        "OMP_NUM_THREADS": "1",  # threads of training wait for each other where other tests run
        "OPENBLAS_NUM_THREADS": "1",
        "EXAMPLES": str(ROOT / "docs" / "examples"),
    }
    command = [*_ALONE, *_REAPER, sys.executable, "-m", "support.pages", *map(str, PAGES)]
    shown = subprocess.run(
        command, capture_output=True, text=True, timeout=_PAGES_S, env=environment, check=True
    ).stdout
    pages = (msgspec.json.decode(line, type=Ran) for line in shown.splitlines())
    return {page.page: page for page in pages}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_code_of_the_page_runs(ran: Mapping[str, Ran], page: Path) -> None:
    of_page = ran[str(page)]

    assert not of_page.failure, of_page.failure
    assert of_page.run + len(of_page.skipped) > 0
