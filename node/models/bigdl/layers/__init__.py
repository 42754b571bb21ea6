"""The layers of BigDL by family. Importing the package registers all layers.

All axes and indices of BigDL start at 1, and negative numbers count from the end.
"""

from importlib import import_module

_FAMILIES = (
    "activation",
    "container",
    "convolution",
    "dense",
    "graph",
    "image",
    "normalization",
    "pooling",
    "recurrent",
    "reduction",
    "shape",
    "table",
)
for _family in _FAMILIES:
    import_module(f"{__name__}.{_family}")
