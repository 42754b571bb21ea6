"""Packages that are imported without their optional parts."""

import sys
from pathlib import Path

import pytest

from cluster_serving.client.servers.process import quick_imports
from cluster_serving.client.servers.process.quick_imports import import_lean

PACKAGE = """
def found(name):
    try:
        __import__(name)
    except ImportError:
        return False
    return True

parts = [name for name in ("slow_part", "known_part") if found(name)]
"""


def test_a_package_is_imported_without_its_optional_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, text in (("some_package", PACKAGE), ("slow_part", ""), ("known_part", "")):
        (tmp_path / f"{name}.py").write_text(text)
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(quick_imports, "_UNWANTED", {"some_package": ["slow_part", "known_part"]})
    __import__("known_part")

    import_lean("some_package")

    assert sys.modules["some_package"].parts == ["known_part"], "what is there already is not taken away"
    __import__("slow_part")
