"""The layers of BigDL by family; importing this package registers all of them.

All axes and indices of BigDL start at 1, and negative ones count from the end.
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
