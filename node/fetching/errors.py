"""Error of a fetch: half a sentence, which `fetch.py` completes with the URL."""


class FetchError(Exception):
    """Reason of a failed fetch. The message begins in the middle of a sentence: `is not there (404)`."""


class ChangedError(FetchError):
    """The content was replaced after it had been found. The fetch has to begin anew."""

    def __init__(self) -> None:
        super().__init__("changes while it is fetched: try again when it is complete")
