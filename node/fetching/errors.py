"""Error of a fetch: half a sentence, which `fetch.py` completes with the URL."""


class FetchError(Exception):
    """Reason of a failed fetch. The message begins in the middle of a sentence: `is not there (404)`."""
