"""Models by URL. A model is fetched into a directory of this machine before a node reads the model.

    modelPath ──► source.py: files and version at the URL ──► cache.py: fetched already?
                                                                │ no
              fetch.py: download, verify ──► unpack.py ──► renamed into the cache, old entries removed

`under_way.py` fetches in a thread, so that a node goes on serving meanwhile.
"""
