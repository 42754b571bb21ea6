"""BigDL's `.model` files.

    schema -> storage -> tree -> registry <- layers/ -> backend

`tree` reads a file with the messages of `schema` and the numbers of `storage`. Each family of `layers` tells the `registry`
how to build a layer from a module of the tree. `backend` builds the whole model and runs it.
"""

from cluster_serving.node.models.bigdl.backend import load

__all__ = ["load"]
