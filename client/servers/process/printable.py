"""Text that a terminal shows and never obeys.

Names and messages may come from any client that can enqueue. Their control characters could take over a terminal.
"""


def printable(text: str) -> str:
    """Return a text as one line, with control characters as escapes."""
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in text)


def printable_lines(text: str) -> str:
    """Return a text with its line breaks, with tabs as spaces, and with all other control characters as escapes."""
    return text if text.isprintable() else "\n".join(map(printable, text.expandtabs().split("\n")))
