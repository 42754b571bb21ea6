"""Calls that name an address, for messages about an address at the wrong place of a call."""


def without_names(queue: str, *address: object) -> TypeError:
    """Return the error for settings of a queue that were given by their places."""
    return TypeError(f"the settings of {queue} have names; write {call_for(queue, *address)}")


def call_for(queue: str, address: object, port: object = None, *_more: object) -> str:
    """Return the call of a queue that names an address.

    Args:
        queue: name of the class.
        address: address as the program gave it: `localhost:6399`, a URL, a host. No password of it is in the call.
        port: port beside it.

    Returns:
        A call, such as `InputQueue(host="localhost", port=6399)`.
    """
    text = str(address)
    scheme, is_url, _ = text.partition("://")
    if is_url and scheme in {"http", "https"}:
        return f'InputQueue("{scheme}://...")'
    if is_url or "@" in text:
        return f'{queue}(url="{scheme if is_url else "redis"}://...")'
    if text.endswith((".yaml", ".yml")):
        return f'{queue}(host="...", port=6379, name="..."), because a client reads no file'
    host, _, number = text.partition("/")[0].rpartition(":") if port is None else (text, "", str(port))
    if not host:
        return f'{queue}(host="{number}"), or {queue}(name="{number}") for the job'
    return f'{queue}(host="{host}", port={number})'
