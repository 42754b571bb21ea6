"""What can go wrong while a model is fetched: half a sentence, which `fetch.py` completes with the URL."""


class FetchError(Exception):
    """Why a model cannot be fetched; begins in the middle of a sentence: `is not there (404)`."""
