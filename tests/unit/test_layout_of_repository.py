"""Links of the parts, and the changelog: nothing else would notice a fault in these."""

from pathlib import Path

ROOT = Path(__file__).parents[2]
PARTS = {"client", "frontend", "node", "swarm"}


def test_every_part_has_its_link() -> None:
    links = {path.name: path for path in (ROOT / "src" / "cluster_serving").iterdir() if path.is_symlink()}

    assert links.keys() == PARTS
    assert all(link.resolve() == ROOT / name for name, link in links.items())


def test_the_links_are_relative() -> None:
    """A clone elsewhere must not point back here."""
    targets = {name: (ROOT / "src" / "cluster_serving" / name).readlink() for name in PARTS}

    assert targets == {name: Path("../..") / name for name in PARTS}


def test_the_changelog_begins_with_what_is_unreleased() -> None:
    lines = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8").splitlines()

    headings = [line for line in lines if line.startswith("## ")]

    assert headings[:1] == ["## Unreleased"]
