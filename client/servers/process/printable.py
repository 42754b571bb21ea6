"""Text that a terminal shows and never obeys."""


def printable(text: str) -> str:
    """Return a text as one line, with control characters as escapes.

    Names and messages may come from any client that can enqueue. Their control characters could take over a terminal.
    """
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in text)
