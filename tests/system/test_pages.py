"""README, tutorials, how-to pages and examples: each block of code runs in its order, as it stands there.

Pages run in a network of their own, where Redis and HTTP have their usual ports. Processes that a page leaves end with it.
"""

import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import msgspec
import pytest

from support.pages import LANGUAGES, Ran

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
_FENCE = re.compile(r"^```(\w*)\n.*?^```", re.MULTILINE | re.DOTALL)
PAGES = [
    ROOT / "README.md",
    *sorted((DOCS / "tutorials").glob("*-*.md")),
    *(page for page in sorted((DOCS / "how-to").glob("*.md")) if _FENCE.search(page.read_text())),
    DOCS / "examples" / "README.md",
]
_SKIP = re.compile(r"<!-- skip: (?:next|start) *(.*?) *-->")
_MOST_SKIPPED = 0.3  # of the blocks that need no Docker: what installs, or stays in the foreground
_ALONE = ["unshare", "--map-root-user", "--net", "--pid", "--fork", "--mount-proc", "--kill-child"]
_REAPER = ["bash", "-c", '"$@"; exit $?', "bash"]  # process 1, which takes the exit codes of processes without a parent
_PAGES_S = 1180


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
        "EXAMPLES": str(DOCS / "examples"),
    }
    command = [*_ALONE, *_REAPER, sys.executable, "-m", "support.pages", *map(str, PAGES)]
    shown = subprocess.run(
        command, capture_output=True, text=True, timeout=_PAGES_S, env=environment, check=True
    ).stdout
    pages = (msgspec.json.decode(line, type=Ran) for line in shown.splitlines())
    return {page.page: page for page in pages}


@pytest.mark.pages
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_code_of_the_page_runs(ran: Mapping[str, Ran], page: Path) -> None:
    of_page = ran[str(page)]

    assert not of_page.failure, of_page.failure
    assert of_page.run + len(of_page.skipped) > 0


@pytest.mark.pages
@pytest.mark.timeout(1200)
def test_most_blocks_are_run(ran: Mapping[str, Ran]) -> None:
    run = sum(page.run for page in ran.values())
    skipped = [why for page in ran.values() for why in page.skipped if "Docker" not in why]
    print(f"{run} blocks run, {len(skipped)} skipped: {sorted(set(skipped))}")

    assert len(skipped) < _MOST_SKIPPED * (run + len(skipped))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_block_has_a_language_and_every_skip_a_reason(page: Path) -> None:
    text = page.read_text()

    assert set(_FENCE.findall(text)) <= {*LANGUAGES}
    assert all(re.fullmatch(r'".+"', reason) for reason in _SKIP.findall(text))
