"""Text that an editor shows of the client: every setting with type and meaning, by pyright's language server."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from cluster_serving.client.api import ConnectionSettings
from support.language_server import LanguageServer

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
SETTINGS = [*ConnectionSettings.__annotations__]
INPUT_SETTINGS = {"dialect", "patience_s", "deadline_s", "compress", "durability", *SETTINGS}
QUEUES = {
    "InputQueue": {"frontend_url", "api_key", *INPUT_SETTINGS},
    "AsyncInputQueue": INPUT_SETTINGS,
    "OutputQueue": {*SETTINGS},
    "AsyncOutputQueue": {*SETTINGS},
}
TEXT = "\n".join(
    [
        f"from cluster_serving.client import {', '.join(QUEUES)}",
        *(f"{queue}()" for queue in QUEUES),
        *(f"InputQueue({setting}=...)" for setting in SETTINGS),
        "InputQueue().predict",
    ]
)


@pytest.fixture(scope="module")
def editor() -> Iterator[LanguageServer]:
    with LanguageServer(ROOT, TEXT) as server:
        yield server


@pytest.mark.parametrize("queue", QUEUES)
def test_every_setting_is_completed(queue: str, editor: LanguageServer) -> None:
    line = 1 + [*QUEUES].index(queue)

    items = editor.at("completion", line, len(queue) + 1)["items"]
    (signature,) = editor.at("signatureHelp", line, len(queue) + 1)["signatures"]

    assert {item["label"].removesuffix("=") for item in items if item["label"].endswith("=")} == QUEUES[queue]
    assert all(f"{setting}: " in signature["label"] for setting in QUEUES[queue])


@pytest.mark.parametrize("setting", SETTINGS)
def test_every_setting_is_told_with_type_and_meaning(setting: str, editor: LanguageServer) -> None:
    line = 1 + len(QUEUES) + SETTINGS.index(setting)

    told = editor.at("hover", line, len("InputQueue(") + 1)["contents"]["value"]

    kind, _, meaning = told.partition("\n")
    assert kind.startswith(f"(variable) {setting}: ")
    assert meaning.strip().endswith(".")


def test_a_call_is_told_with_its_answer(editor: LanguageServer) -> None:
    told = editor.at("hover", TEXT.count("\n"), len("InputQueue().p"))["contents"]["value"]

    assert "timeout: float = 5" in told
    assert "-> Answer" in told
    assert "Send one record and wait for its result." in told
