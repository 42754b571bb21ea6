from collections.abc import Sequence
from pathlib import Path

import pytest
from bench.mutants import MUTANTS
from bench.overhead import PATCHES
from bench.variants import Patch, copy

VARIANTS: dict[str, Sequence[Patch]] = {**MUTANTS, "overhead": PATCHES}


@pytest.mark.parametrize("name", VARIANTS)
def test_every_patch_fits_the_product(tmp_path: Path, name: str) -> None:
    """A failure of this test says that the product has changed, and that the patch must change too."""
    copy(tmp_path, VARIANTS[name])

    for patch in VARIANTS[name]:
        text = (tmp_path / "cluster_serving" / patch.file).read_text()
        assert patch.after in text
        if patch.file.endswith(".py"):
            compile(text, patch.file, "exec")


def test_a_patch_that_does_not_fit_is_named_and_stops_everything(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match=r"node/worker/worker.py holds this 0 times, not once:\nno such line"):
        copy(tmp_path, [Patch("node/worker/worker.py", "no such line", "")])
