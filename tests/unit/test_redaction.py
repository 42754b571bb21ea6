import re
import sys
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote, quote_plus

import pytest
import structlog
from hypothesis import given
from hypothesis import strategies as st

from cluster_serving.client.redis_settings import RedisSettings
from cluster_serving.client.servers.process import log, redaction
from cluster_serving.client.servers.process.redaction import hide, redact, secrets_of_config, secrets_of_spec
from cluster_serving.node.config.loading import Config
from cluster_serving.node.models.secrets import Secrets


@pytest.fixture(autouse=True)
def forgotten(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No secret of one test is hidden in another."""
    monkeypatch.setattr(redaction, "_secrets", {})
    monkeypatch.setattr(redaction, "_pattern", None)
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)
    yield
    structlog.reset_defaults()
    structlog.contextvars.clear_contextvars()


def test_a_secret_is_hidden_wherever_it_stands() -> None:
    hide("hunter2")

    assert redact("redis://user:hunter2@host, hunter2hunter2") == "redis://user:***@host, ******"


def quote_in_small_letters(text: str) -> str:
    return re.sub("%..", lambda escape: escape[0].lower(), quote(text, safe=""))


@pytest.mark.parametrize(
    "secret", ["p@ss/w:rd", "with space", 'quo"te', "back\\slash", "ключ-ключ", "a.b*c(d", "line\nbreak", "%2F%2f"]
)
@pytest.mark.parametrize("write", [str, quote, quote_plus, repr, quote_in_small_letters])
def test_every_way_to_write_it_is_hidden(secret: str, write: Any) -> None:
    hide(secret)

    written = write(secret)

    assert redact(f"[{written}]") in ("[***]", "['***']", '["***"]')


def test_what_is_too_short_stays() -> None:
    hide("", None, "a", "abc")

    assert redact("a bad cab: abc") == "a bad cab: abc"


def test_of_two_secrets_the_longer_one_goes_first() -> None:
    hide("word", "wordsmith")

    assert redact("wordsmith word") == "*** ***"


def test_without_secrets_nothing_is_hidden() -> None:
    assert redact("nothing") == "nothing"


@given(st.text(min_size=4), st.text(), st.text())
def test_no_secret_is_left(secret: str, before: str, after: str) -> None:
    redaction.__dict__["_secrets"].clear()
    hide(secret)

    left = redact(before + secret + after)

    assert secret not in left.split(redaction.HIDDEN)


def test_no_line_of_the_log_shows_one(capsys: pytest.CaptureFixture[str]) -> None:
    hide('hunt"er2')
    log.configure("worker-0", "info")
    logger = structlog.get_logger("test")

    try:
        raise ValueError('AUTH hunt"er2 failed')
    except ValueError:
        logger.exception('event hunt"er2', url="redis://:hunt%22er2@host/0", values=['hunt"er2'], other={'hunt"er2': 1})

    printed = capsys.readouterr().out
    assert "hunt" not in printed
    assert printed.count(redaction.HIDDEN) >= 5


def test_an_exception_that_nobody_caught_shows_none(capsys: pytest.CaptureFixture[str]) -> None:
    hide("hunter2")
    log.configure("worker-0", "info")

    error = ValueError("AUTH hunter2 failed")
    sys.excepthook(ValueError, error, None)

    assert capsys.readouterr().err == "ValueError: AUTH *** failed\n"


def test_every_secret_of_a_configuration_is_found() -> None:
    config = Config.model_validate(
        {
            "redisUrl": "redis://user:in%2Furl@host",
            "redisPassword": "password",
            "modelSecret": "model",
            "modelSalt": "salt",
            "recordSecret": "record",
            "recordSalt": "pepper",
        }
    )

    found = set(secrets_of_config(config))

    assert found >= {"in/url", "password", "model", "salt", "record", "pepper"}


def test_every_secret_of_a_child_is_found() -> None:
    class Lane:
        redis = RedisSettings(password="of redis")  # noqa: S106

    class Spec:
        lane = Lane()
        model_secrets = Secrets("model", "salt")
        record_secrets = None

    assert [*secrets_of_spec(Spec())] == ["of redis", "model", "salt"]
