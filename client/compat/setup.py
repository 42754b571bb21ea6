"""Build that refuses where the original is installed: pip runs it with the Python that the wheel is for."""

import sysconfig
from pathlib import Path

from setuptools import setup

_PLACE = Path(sysconfig.get_path("purelib"))
for _name in ("zoo", "bigdl"):
    if (_PLACE / _name / "serving" / "client.py").exists():
        raise SystemExit(
            f"cluster-serving-compat is not installed: {_name}.serving.client of the original is installed in {_PLACE}. "
            f"To use Cluster Serving, remove the original first (pip list | grep -i -E 'analytics-zoo|bigdl', pip uninstall ...)."
        )
setup()
