"""Names that are imported when a test first uses them: a process that collects the tests imports no framework for it."""

from functools import cached_property
from importlib import import_module
from operator import attrgetter
from typing import Any


class Lazily:
    """A name of a module, such as `tf.compat.v1` of one that imports TensorFlow."""

    def __init__(self, module: str, name: str) -> None:
        self._module, self._name = module, name

    def __getattr__(self, attribute: str) -> Any:
        """Import the module, and return what the name has. pytest looks for private names."""
        if attribute.startswith("_"):
            raise AttributeError(attribute)
        return getattr(self._found, attribute)

    @cached_property
    def _found(self) -> Any:
        return attrgetter(self._name)(import_module(self._module))
