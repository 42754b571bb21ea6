"""Address of Redis: every way to write it; no text made from it tells the password."""

import hashlib
from typing import Any

import pytest
import redis

from cluster_serving.client.errors import ConnectionLost
from cluster_serving.client.protocol.resp import Script, is_out_of_memory, pack
from cluster_serving.client.redis_settings import RedisSettings
from cluster_serving.client.sentinels.settings import SentinelSettings
from cluster_serving.client.threads.link import Link

SECRET = "s3cr3t"  # noqa: S105 - of no server


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("localhost:6379", RedisSettings()),
        ("10.0.0.1", RedisSettings(host="10.0.0.1")),
        ("redis.example:7000", RedisSettings(host="redis.example", port=7000)),
        ("h:7000/3", RedisSettings(host="h", port=7000, db=3)),
        ("h:7000?db=3", RedisSettings(host="h", port=7000, db=3)),
        ("redis://h/3?db=4", RedisSettings(host="h", db=4)),
        ("redis+sentinel://a/main?db=3", RedisSettings(sentinels=SentinelSettings((("a", 26379),), "main"), db=3)),
        ("redis://", RedisSettings()),
        ("redis://h", RedisSettings(host="h")),
        ("redis://h/", RedisSettings(host="h")),
        ("redis://[::1]:7000/1", RedisSettings(host="::1", port=7000, db=1)),
        (f"redis://user:{SECRET}@h:7000/3", RedisSettings("h", 7000, 3, "user", SECRET)),
        (f"redis://:{SECRET}@h", RedisSettings("h", password=SECRET)),
        ("redis://us%40er:p%2Fw%3A%40@h", RedisSettings("h", username="us@er", password="p/w:@")),  # noqa: S106
        ("rediss://h:6380", RedisSettings("h", 6380, tls=True)),
        ("unix:///run/redis.sock", RedisSettings(unix_path="/run/redis.sock")),
        (
            f"unix://user:{SECRET}@/run/r.sock?db=2",
            RedisSettings(unix_path="/run/r.sock", db=2, username="user", password=SECRET),
        ),
        (
            "redis+sentinel://a,b:1,c:2/main/4",
            RedisSettings(sentinels=SentinelSettings((("a", 26379), ("b", 1), ("c", 2)), "main"), db=4),
        ),
        (
            f"rediss+sentinel://u:{SECRET}@a:1/main",
            RedisSettings(
                sentinels=SentinelSettings((("a", 1),), "main", tls=True), username="u", password=SECRET, tls=True
            ),
        ),
    ],
)
def test_urls(url: str, expected: RedisSettings) -> None:
    assert RedisSettings.parse(url) == expected


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("h", RedisSettings("h", 6379, 5, "user", SECRET, True, "ca", "cert", "key", timeout_s=1.5)),
        ("redis://other:pw@h/7", RedisSettings("h", 6379, 7, "other", "pw", True, "ca", "cert", "key", timeout_s=1.5)),
    ],
)
def test_what_the_url_says_wins(url: str, expected: RedisSettings) -> None:
    options: dict[str, Any] = {"username": "user", "password": SECRET, "db": 5, "tls": True, "timeout_s": 1.5}
    files: dict[str, Any] = {"ca_file": "ca", "cert_file": "cert", "key_file": "key"}

    assert RedisSettings.parse(url, **options, **files) == expected


@pytest.mark.parametrize(("scheme", "tls"), [("redis", False), ("rediss", True)])
def test_a_login_at_the_sentinels_is_theirs_and_the_scheme_says_whether_they_take_tls(scheme: str, tls: bool) -> None:
    parsed = RedisSettings.parse(
        f"{scheme}+sentinel://u:pw@a:1/main", tls=True, ca_file="ca", sentinel_username="su", sentinel_password=SECRET
    )

    assert parsed.sentinels == SentinelSettings((("a", 1),), "main", "su", SECRET, tls, "ca")
    assert (parsed.username, parsed.password, parsed.tls) == ("u", "pw", True)
    assert SECRET not in f"{parsed!r} {parsed.describe()}"


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("localhost", "redis://user:pw@127.0.0.1:6379/0", True),
        ("localhost:7000", "localhost", False),
        ("localhost", "redis://localhost/1", False),
        ("elsewhere", "localhost", False),
        ("unix:///run/r.sock", "unix:///run/r.sock", True),
        ("redis+sentinel://a/main", "redis+sentinel://a/other", False),
    ],
)
def test_the_same_database(one: str, other: str, same: bool) -> None:
    assert RedisSettings.parse(one).is_same(RedisSettings.parse(other)) is same


@pytest.mark.parametrize("url", ["unix:///run/r.sock", "redis+sentinel://a/main", "h"])
def test_the_number_of_the_database_holds_for_every_kind(url: str) -> None:
    assert RedisSettings.parse(url, db=6).db == 6


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("http://h", "unknown scheme http://, expected redis://, rediss://, unix:// or redis+sentinel://"),
        ("redis+cluster://h", "unknown scheme redis+cluster://"),
        ("redis+sentinel://a:1", "a sentinel URL ends in /service"),
        ("redis+sentinel:///main", "a sentinel URL names at least one host"),
        *(
            (url, "a Redis URL ends with the database, as /0 or ?db=0: all else is a setting of its own")
            for url in (
                f"redis://h?password={SECRET}",
                "rediss://h/0?ssl_ca_certs=ca.pem&db=0",
                f"redis://user:12#{SECRET}@h",
                f"redis://user:12/3/{SECRET}@h",
                f"redis+sentinel://a/main/0/{SECRET}",
                "unix:///run/r.sock?db=0&timeout",
            )
        ),
        *(
            (url, "the name of a host has 1 to 63 letters from one dot to the next")
            for url in ("redis..svc:6379", f"rediss://:{SECRET}@{64 * 'h'}", "redis+sentinel://a,.b:1/main")
        ),
        (f"redis://h:{SECRET}", "port or db of the Redis URL is not a number"),
        ("redis://h:99999", "port or db of the Redis URL is not a number"),
        (f"redis://h:1/{SECRET}", "port or db of the Redis URL is not a number"),
        (f"redis://user:{SECRET}/x@h:1", "port or db of the Redis URL is not a number"),
        (f"redis://user:12/{SECRET}@h:1", "port or db of the Redis URL is not a number"),
        (f"redis://h?db={SECRET}", "port or db of the Redis URL is not a number"),
        (f"unix:///s?db={SECRET}", "port or db of the Redis URL is not a number"),
        (f"redis+sentinel://a:{SECRET}/main", "port or db of the Redis URL is not a number"),
        (f"redis+sentinel://a/main/{SECRET}", "port or db of the Redis URL is not a number"),
    ],
)
def test_what_is_no_url_is_refused_without_its_secret(url: str, reason: str) -> None:
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - the message is compared below
        RedisSettings.parse(url)

    assert str(caught.value).startswith(reason)
    assert SECRET not in str(caught.value)
    assert caught.value.__suppress_context__ or caught.value.__context__ is None


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        (f"redis://user:{SECRET}@h:7000/3", "redis://h:7000/3"),
        (f"rediss://:{SECRET}@h", "rediss://h:6379/0"),
        (f"redis://:{SECRET}@[::1]:7000/1", "redis://[::1]:7000/1"),
        (f"unix://:{SECRET}@/run/r.sock?db=2", "unix:///run/r.sock?db=2"),
        (f"redis+sentinel://:{SECRET}@a:1,b/main/4", "redis+sentinel://a:1,b:26379/main/4"),
        (f"rediss+sentinel://:{SECRET}@a/main", "rediss+sentinel://a:26379/main/0"),
    ],
)
def test_nothing_shows_the_password(url: str, shown: str) -> None:
    parsed = RedisSettings.parse(url)

    assert parsed.password == SECRET
    assert parsed.describe() == shown
    assert parsed.is_same(RedisSettings.parse(shown))
    assert SECRET not in f"{parsed!r} {parsed}"


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("localhost", True),
        ("redis://:pw@127.0.0.1:7000/2", True),
        ("127.0.0.2", False),
        ("h", False),
        ("rediss://localhost", False),
        ("unix:///s", False),
        ("redis+sentinel://localhost/main", False),
    ],
)
def test_which_redis_a_node_may_start_itself(url: str, expected: bool) -> None:
    assert RedisSettings.parse(url).is_local_default is expected


def test_nothing_is_repeated_behind_the_callers_back() -> None:
    options = RedisSettings.parse(f"rediss://u:{SECRET}@h/3", timeout_s=2, ca_file="ca").options()

    assert options["retry"].get_retries() == 0
    assert (options["socket_timeout"], options["socket_connect_timeout"]) == (2, 2)
    assert (options["db"], options["username"], options["password"]) == ("3", "u", SECRET)
    assert options["ssl_ca_certs"] == "ca"


@pytest.mark.parametrize(
    ("url", "kind"),
    [
        ("h:7000", "Connection"),
        ("rediss://h", "SSLConnection"),
        ("unix:///s", "UnixDomainSocketConnection"),
        ("redis+sentinel://a/main", "MasterConnection"),
        ("rediss+sentinel://a/main", "MasterTlsConnection"),
    ],
)
def test_each_kind_has_its_connection(url: str, kind: str) -> None:
    with RedisSettings.parse(url).client() as client:
        assert client.connection_pool.connection_class.__name__ == kind


def test_commands_are_packed_as_redis_reads_them() -> None:
    packed = pack(("SET", b"\xff", 5, "ü", 1.5))

    assert packed == b"*5\r\n$3\r\nSET\r\n$1\r\n\xff\r\n$1\r\n5\r\n$2\r\n\xc3\xbc\r\n$3\r\n1.5\r\n"


def test_a_script_is_known_by_its_text() -> None:
    script = Script("return 1")

    sha = hashlib.sha1(b"return 1", usedforsecurity=False).hexdigest()
    assert script.command(["k1", b"k2"], [5]) == (b"EVALSHA", sha.encode(), b"2", "k1", b"k2", 5)


def test_a_link_connects_when_it_is_needed_and_names_the_server_that_is_away() -> None:
    link = Link(RedisSettings("127.0.0.1", 1, password=SECRET))
    assert not link.connected

    with pytest.raises(ConnectionLost, match=r"^Redis at redis://127\.0\.0\.1:1/0: .*Connection refused") as caught:
        link.call("PING")

    assert not link.connected
    assert SECRET not in str(caught.value)
    link.close()


def test_a_refused_connection_to_another_machine_names_the_redis_that_listens_on_its_own_alone() -> None:
    elsewhere, here = (Link(RedisSettings(host, 1)) for host in ("127.0.0.2", "localhost"))

    for link, told in ((elsewhere, True), (here, False)):
        with pytest.raises(ConnectionLost) as caught:
            link.call("PING")
        assert ("listens on its own machine alone" in str(caught.value)) is told
        link.close()


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("OOM command not allowed when used memory > 'maxmemory'.", True),
        ("ERR OOM command not allowed script: x", True),
        ("WRONGTYPE Operation", False),
    ],
)
def test_out_of_memory(message: str, expected: bool) -> None:
    assert is_out_of_memory(redis.ResponseError(message)) is expected
