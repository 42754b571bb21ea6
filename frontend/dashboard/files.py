"""Files of the page: our own, and the libraries that the page uses. Nothing comes from elsewhere."""

from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

PAGE = "dashboard.html"
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
_TYPES = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}


class File(NamedTuple):
    """File of the page. `tag` is its entity tag (RFC 9110, 8.8.3), which changes with the content."""

    content: bytes
    kind: str
    tag: str


@cache
def files() -> dict[str, File]:
    """Return every file by its name."""
    found: dict[str, File] = {}
    for folder in ("static", "vendor"):
        for path in Path(__file__).with_name(folder).iterdir():
            if path.suffix in _TYPES:
                content = path.read_bytes()
                found[path.name] = File(content, _TYPES[path.suffix], f'"{sha256(content).hexdigest()[:16]}"')
    return found
