"""BigDL's `.model` files.

    schema -> storage -> tree -> registry <- layers/ -> backend

`tree` reads a file with the messages of `schema` and the numbers of `storage`; each family of `layers` says in the `registry` how
its layers are built of a module of the tree; `backend` builds the whole and runs it.
"""

from cluster_serving.node.models.bigdl.backend import load

__all__ = ["load"]
