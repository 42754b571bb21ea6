"""Login at a frontend: the API key, and the user and password that a URL may hold for a proxy before it."""

import base64
from urllib.parse import unquote


def login(url: str, api_key: str | None) -> tuple[str, dict[str, str]]:
    """Return a URL without user and password, and the headers that log in.

    urllib, and a header `Host`, would take user and password for a part of the host.

    Args:
        url: URL of a frontend. A URL of another kind stays as it is.
        api_key: API key, where the frontend wants one.
    """
    headers = {"X-API-Key": api_key} if api_key else {}
    scheme, separator, rest = url.partition("://")
    authority, slash, path = rest.partition("/")
    user, at, host = authority.rpartition("@")
    if not at or scheme not in ("http", "https"):
        return url, headers
    headers["Authorization"] = f"Basic {base64.b64encode(unquote(user).encode()).decode()}"
    return f"{scheme}{separator}{host}{slash}{path}", headers
