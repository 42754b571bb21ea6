"""One process of a frontend, seen from the server, and the spec of the process."""

from typing import Any

import msgspec
from pydantic import SecretStr

from cluster_serving.client.servers.process import child
from cluster_serving.frontend.config.settings import FrontendConfig
from cluster_serving.frontend.server.listeners import Listener


class Spec(msgspec.Struct, frozen=True):
    """Parameters of a process. `http`, `https` and `timers` are descriptors: of listening sockets, and of the shared memory."""

    number: int
    config: dict[str, Any]
    http: list[int]
    https: list[int]
    timers: int


def to_plain(config: FrontendConfig) -> dict[str, Any]:
    """Return a config for a pipe, secrets included."""
    values = config.model_dump(by_alias=True)
    return {key: value.get_secret_value() if isinstance(value, SecretStr) else value for key, value in values.items()}


class Child(child.Child):
    """Process `number` of a frontend, with its sockets of each listener and the memory of `Timers`."""

    def __init__(self, number: int, listeners: list[Listener], config: FrontendConfig, timers_fd: int) -> None:
        http, *https = [listener.descriptors(number) for listener in listeners]
        spec = Spec(number, to_plain(config), http, https[0] if https else [], timers_fd)
        super().__init__(
            f"frontend-{number}",
            ["cluster_serving.frontend.server.process"],
            msgspec.json.encode(spec),
            (*spec.http, *spec.https, timers_fd),
        )
