"""Models by URL: fetched into a directory of this machine before they are looked at.

    modelPath ──► source.py: what is there, and which version ──► cache.py: is it here already?
                                                                    │ no
              fetch.py: download, verify ──► unpack.py ──► renamed into the cache, old entries removed

`under_way.py` does this in a thread, so that a node goes on serving meanwhile.
"""
