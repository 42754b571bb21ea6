"""API keys in a file."""

from pathlib import Path

import pytest

from cluster_serving.client.servers.config.spellings import ConfigError
from cluster_serving.frontend.config.api_keys import ApiKeys


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A file with two keys."""
    path = tmp_path / "keys"
    path.write_text("# of the team\n\nfirst-key\nalice: second:key \n  # no-key\n")
    path.chmod(0o600)
    return path


@pytest.mark.parametrize(
    ("key", "allowed"),
    [
        ("first-key", True),
        ("second:key", True),
        ("alice", False),
        ("alice: second:key", False),
        ("# of the team", False),
        ("no-key", False),
        ("first-ke", False),
        ("first-key ", False),
        ("", False),
        ("\udcff\N{SNOWMAN}", False),
    ],
)
def test_which_keys_are_right(file: Path, key: str, allowed: bool) -> None:
    assert ApiKeys(str(file)).allows(key, 0.0) is allowed


def test_a_changed_file_is_read_within_a_second(file: Path) -> None:
    keys = ApiKeys(str(file))
    before = keys.allows("third-key", 0.0)
    file.write_text("third-key\n")

    soon, later = keys.allows("third-key", 0.9), keys.allows("third-key", 1.0)

    assert (before, soon, later) == (False, False, True)
    assert not keys.allows("first-key", 1.0)


def test_the_keys_of_before_count_while_the_file_cannot_be_read(file: Path) -> None:
    keys = ApiKeys(str(file))
    moved = file.rename(file.with_name("moved"))
    while_gone = keys.allows("first-key", 0.0)
    moved.rename(file).write_text("# nobody\n")
    while_empty = keys.allows("first-key", 2.0)
    file.write_text("new-key\n")

    assert (while_gone, while_empty) == (True, True)
    assert (keys.allows("first-key", 4.0), keys.allows("new-key", 4.0)) == (False, True)


@pytest.mark.parametrize(
    ("content", "mode", "message"),
    [
        (b"# none\n\n", 0o600, "holds no key"),
        (b"alice:\n", 0o600, "holds no key"),
        (b"\xff\xfe", 0o600, "is not text"),
        (b"key\n", 0o602, "can be written by everybody"),
    ],
)
def test_a_file_that_would_let_in_nobody_or_anybody_is_refused(
    tmp_path: Path, content: bytes, mode: int, message: str
) -> None:
    path = tmp_path / "keys"
    path.write_bytes(content)
    path.chmod(mode)

    with pytest.raises(ConfigError, match=message):
        ApiKeys(str(path))


def test_a_file_that_everybody_can_read_is_used_with_a_warning(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file.chmod(0o644)

    keys = ApiKeys(str(file))

    assert keys.allows("first-key", 0.0)
    printed = capsys.readouterr().out
    assert "can be read by everybody" in printed
    assert "first-key" not in printed


def test_the_mark_of_a_windows_editor_is_no_part_of_the_first_key(file: Path) -> None:
    file.write_bytes(b"\xef\xbb\xbffirst-key\r\nbob:other-key\r\n")

    keys = ApiKeys(str(file))

    assert keys.allows("first-key", 0)
    assert keys.allows("other-key", 0)
