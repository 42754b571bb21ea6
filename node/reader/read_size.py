"""Number of entries to ask Redis for at once.

Redis bounds a reply by entries and not by bytes, and a field may have 512 MB. So the reader begins with a single entry, asks for
twice as many while entries are small, and for fewer as soon as entries are large.
"""


class ReadSize:
    """Keeps replies near `reply_bytes`, judged by the replies before. A larger entry comes alone."""

    def __init__(self, reply_bytes: int) -> None:
        self._reply_bytes = reply_bytes
        self._entry_bytes = reply_bytes  # bytes that an entry is taken to have

    def entries(self, most: int) -> int:
        """Return the number of entries to ask for, from 1 to `most`."""
        return max(1, min(most, self._reply_bytes // self._entry_bytes))

    def note(self, entries: int, received_bytes: int) -> None:
        """Note a reply: its entries, and its bytes."""
        if entries:
            self._entry_bytes = max(received_bytes // entries, self._entry_bytes // 2)
