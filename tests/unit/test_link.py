"""Commands as bytes."""

import hiredis
import pytest

from cluster_serving.client.protocol.resp import Argument, pack


@pytest.mark.parametrize("count", [1, 63, 64, 500])
@pytest.mark.parametrize("last", [b"", b"\r\n\x00", b"x" * 4095, b"x" * 4096, b"x" * 100_000, "ü", 12, 1.5])
def test_commands_are_what_hiredis_makes_of_them(count: int, last: Argument) -> None:
    command = [*[b"x" * (number % 20) for number in range(count - 1)], last]

    assert pack(command) == hiredis.pack_command(tuple(command))  # type: ignore[arg-type]
