"""`dead-letters` on a real Redis, with letters written as `finish.lua` writes them."""

import json
import stat
import threading
import time
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result

from cluster_serving.client import keys
from cluster_serving.client.redis_settings import RedisSettings
from cluster_serving.client.servers.process.exit_codes import ExitCode
from cluster_serving.client.threads.link import Link
from cluster_serving.client.wire.dead_letter import Reason
from cluster_serving.client.wire.values import encode_record
from cluster_serving.node.cli import main
from cluster_serving.node.job.directory import Job, NodeRecord
from cluster_serving.node.writer.dead_letters import DeadLetters
from support.completion import completed
from support.dead_letters import DIED_MS, MODEL, Letters
from support.private_redis import PrivateRedis


def test_list_shows_the_newest_first_and_how_many_there_are(letters: Letters) -> None:
    letters.put_named(*(f"u{number}" for number in range(40)))
    table = letters.run("list", "--limit", "3")

    assert table.exit_code == 0
    assert table.stdout.splitlines()[0] == f"Dead letters of job {letters.job}: 40 in all, 3 shown"
    assert [line.split()[-4] for line in table.stdout.splitlines()[2::2]] == ["u39", "u38", "u37"]
    assert letters.listed() == [f"u{number}" for number in range(39, 19, -1)]
    assert len(letters.listed("-n", "100")) == 40


def test_list_filters_by_code_and_uri(letters: Letters) -> None:
    letters.put_named("a1", "b1")
    letters.put_named("a2", "b2", code="InferenceFailed")

    assert letters.listed("--code", "InferenceFailed") == ["b2", "a2"]
    assert letters.listed("--uri", "a*") == ["a2", "a1"]
    assert letters.listed("--uri", "a*", "--code", "WorkerDied") == ["a1"]
    assert letters.listed("--uri", "c*") == []


def test_a_job_without_dead_letters(letters: Letters) -> None:
    empty = letters.run("list")
    as_json = letters.run("list", "--json")
    others = [
        letters.run(*words) for words in (("replay", "--all"), ("purge", "--all"), ("export", "--all", "-o", "-"))
    ]

    assert (empty.exit_code, empty.stdout) == (0, f"No dead letters in job {letters.job}.\n")
    assert (as_json.exit_code, as_json.stderr) == (0, "")
    assert json.loads(as_json.stdout) == {"job": letters.job, "total": 0, "letters": []}
    assert [other.exit_code for other in others] == [0, 0, 0]
    assert not letters.redis.exists(keys.dead_key(letters.job), letters.job)


def test_show_tells_everything(letters: Letters) -> None:
    record = encode_record("img-17", {"x": np.arange(6, dtype=np.float32).reshape(2, 3), "i": b"\xff\xd8\xff"})
    (letter_id,) = [letters.put(record, code="InferenceFailed", message="ValueError: no")]
    shown = letters.run("show", letter_id)
    found = json.loads(letters.run("show", letter_id, "--json").stdout)

    for part in (
        "img-17",
        "InferenceFailed",
        "ValueError: no",
        "node-1",
        MODEL,
        "Traceback: here",
        "2025-11-20 16:43:20 UTC",
    ):
        assert part in shown.stdout
    assert "tensor:x  tensor  float32  [2, 3]" in shown.stdout
    assert "0, 1, 2, 3, 4, 5" in shown.stdout
    assert (found["deliveries"], found["died_ms"], found["enqueued_ms"]) == (2, DIED_MS, DIED_MS - 1000)
    assert [field["kind"] for field in found["fields"]] == ["text", "tensor", "image"]


def test_replay_puts_back_the_record_as_it_came_but_for_who_waited_and_how_long(letters: Letters) -> None:
    record = [
        b"uri",
        b"u",
        b"tensor:x",
        bytes(range(256)),
        b"string:s",
        b"1",
        b"string:s",
        b"2",
        b"dead_letter",
        b"own",
    ]
    waited = [b"reply", b"cluster-serving.reply_a:b", b"deadline", b"1"]
    letter_id = letters.put([*record[:4], *waited, *record[4:]])
    result = letters.run("replay", letter_id)

    assert result.exit_code == 0
    assert result.stdout == f"1 dead letter put back into job {letters.job}.\n"
    assert letters.stream(letters.job) == [record]
    assert letters.listed() == []


def test_a_letter_of_first_bytes_says_so_and_is_not_put_back(letters: Letters) -> None:
    cut = letters.put([b"uri", b"large", b"tensor:x", b"\x10\0\0"], cut_bytes=10_000_128)
    letters.put_named("small")
    shown = letters.run("show", cut)
    found = json.loads(letters.run("show", cut, "--json").stdout)
    exported = json.loads(letters.run("export", cut, "-o", "-").stdout)
    replayed = letters.run("replay", "--all", "--yes")

    assert "of its record's 10,000,128 bytes only the first are kept (maxDeadLetterBytes)" in " ".join(
        shown.stdout.split()
    )
    assert [field["name"] for field in found["fields"]] == ["uri", "tensor:x"]
    assert found["cut_bytes"] == exported["cut_bytes"] == 10_000_128
    assert replayed.exit_code == 1
    assert f"dead letter {cut} cannot be put back: of its record's 10,000,128 bytes only the first" in replayed.stderr
    assert "1 dead letter put back" in replayed.stdout
    assert letters.uris(letters.job) == ["small"]
    assert letters.listed() == ["large"]


def test_replay_to_another_job(letters: Letters) -> None:
    letters.put_named("a", "b")
    letters.put_named("c", code="InferenceFailed")
    other = f"{letters.job}-other"
    result = letters.run("replay", "--all", "--code", "WorkerDied", "--to", other)

    assert "2 dead letters put back" in result.stdout
    assert f"No node has served job {other}" in result.stderr
    assert letters.uris(other) == ["a", "b"]
    assert letters.uris(letters.job) == []
    assert letters.listed() == ["c"]


@pytest.mark.parametrize(("name", "why"), [("a:b", "must have no ':', because"), ("", "must not be empty")])
def test_replay_refuses_a_name_that_no_job_can_have(letters: Letters, name: str, why: str) -> None:
    letters.put_named("a")

    result = letters.run("replay", "--all", "--to", name)

    assert result.exit_code == ExitCode.USAGE
    assert f"Invalid value for '--to': {name!r} {why}" in result.stderr
    assert letters.listed() == ["a"]


def test_replay_is_not_refused_by_a_full_queue(letters: Letters) -> None:
    letters.redis.hset(keys.limits_key(letters.job), "maxQueueLength", 1)
    letters.redis.xadd(letters.job, {"uri": "waits"})
    letters.put_named("a", "b")

    assert letters.run("replay", "--all").stderr == ""
    assert letters.uris(letters.job) == ["waits", "a", "b"]


def test_an_id_that_is_not_there_is_named_and_the_others_are_done(letters: Letters) -> None:
    first, second, third, fourth = letters.put_named("a", "b", "c", "d")
    replayed = letters.run("replay", first, "1-1", second, second)
    exported = letters.run("export", third, "2-2", "-o", "-")
    purged = letters.run("purge", "3-3", third)
    shown = letters.run("show", first)

    for result, missing in ((replayed, "1-1"), (exported, "2-2"), (purged, "3-3"), (shown, first)):
        assert f"job {letters.job} has no dead letter {missing}\n" in result.stderr
        assert result.exit_code == 1
    assert letters.uris(letters.job) == ["a", "b"]
    assert "2 dead letters put back" in replayed.stdout
    assert json.loads(exported.stdout)["id"] == third
    assert letters.listed() == ["d"]
    assert [fourth] == [letter["id"] for letter in json.loads(letters.run("list", "--json").stdout)["letters"]]


def test_a_letter_that_cannot_be_put_back_stays(letters: Letters) -> None:
    letters.put_named("a")
    letters.redis.set(f"{letters.job}-other", "no stream")
    result = letters.run("replay", "--all", "--to", f"{letters.job}-other")

    assert result.exit_code == 6
    assert "WRONGTYPE" in result.stderr
    assert result.stdout.startswith("0 dead letters put back")
    assert letters.listed() == ["a"]


def test_two_who_replay_at_once_put_each_letter_back_once(letters: Letters) -> None:
    ids = letters.put_named(*map(str, range(300)))
    done: list[str | None] = []

    def replay() -> None:
        link = Link(RedisSettings.parse(letters.server.url))
        done.extend(DeadLetters(link, letters.job).replay(each, letters.job) for each in ids)
        link.close()

    threads = [threading.Thread(target=replay) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert sorted(letters.uris(letters.job), key=int) == list(map(str, range(300)))
    assert (len(done), done.count(None)) == (600, 300)


def test_export_keeps_every_byte_for_its_owner_alone(letters: Letters, tmp_path: Path) -> None:
    letters.put([b"uri", b"u", b"tensor:x", b"\xff\x00", b"string:s", '"ü"'.encode()])
    letters.put_named("v")
    path = tmp_path / "letters.jsonl"
    result = letters.run("export", "--all", "--output", str(path))
    again = letters.run("export", "--all", "--output", str(path))
    first, second = map(json.loads, path.read_text().splitlines())
    missing = letters.run("export", "1-1", "--output", str(path), "--force")
    kept = path.read_text().splitlines()
    forced = letters.run("export", "--all", "--output", str(path), "--force", "--code", "None")

    assert (result.exit_code, result.stdout) == (0, "")
    assert first["fields"] == [["uri", "u"], ["tensor:x", {"b64": "/wA="}], ["string:s", '"ü"']]
    assert (first["code"], first["model"], second["fields"][0]) == ("WorkerDied", MODEL, ["uri", "v"])
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert (again.exit_code, "exists" in again.stderr) == (1, True)
    assert (missing.exit_code, len(kept), "nothing was written" in missing.stderr) == (1, 2, True)
    assert (forced.exit_code, path.read_text()) == (0, "")


def test_export_to_where_nothing_can_be_written(letters: Letters, tmp_path: Path) -> None:
    result = letters.run("export", "--all", "-o", str(tmp_path / "gone" / "letters"))

    assert result.exit_code == 1
    assert result.stderr == f"{tmp_path}/gone/letters: No such file or directory\n"


def test_purge_by_age_and_code(letters: Letters) -> None:
    letters.put_named("old", "old2", code="InferenceFailed", died_ms=DIED_MS)
    letters.put_named("new", died_ms=round(time.time() * 1000) - 1000)
    none = letters.run("purge", "--all", "--older-than", "1h", "--code", "WorkerDied")
    old = letters.run("purge", "--all", "--older-than", "1h")
    left = letters.listed()
    rest = letters.run("purge", "--all", "--yes")

    assert [each.stdout for each in (none, old, rest)] == [
        f"{count} of job {letters.job} deleted.\n" for count in ("0 dead letters", "2 dead letters", "1 dead letter")
    ]
    assert left == ["new"]
    assert letters.listed() == []


def test_ten_thousand_letters_take_little_memory(letters: Letters) -> None:
    script = """
        for i = ARGV[2], ARGV[2] + 499 do
          redis.call('XADD', KEYS[1], '*', 'dead_letter', ARGV[1], 'uri', i, 'image:x', string.rep('x', 4096))
        end"""
    reason = Reason("WorkerDied", "m" * 200, "t" * 200, "1-1", "node-1", MODEL, DIED_MS, deliveries=1)
    for first in range(
        1, 10_000, 500
    ):  # one script would outlast the client's timeout on a busy machine, and run twice
        letters.redis.eval(script, 1, keys.dead_key(letters.job), reason.encode(), first)
    tracemalloc.start()
    try:
        assert "10000 in all, 1 shown" in letters.run("list", "--uri", "1").stdout
        tracemalloc.reset_peak()
        before, _ = tracemalloc.get_traced_memory()
        result = letters.run("list", "--uri", "1")
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
        purged = letters.run("purge", "--all")

    assert "10000 in all, 1 shown" in result.stdout
    assert peak - before < 4 << 20  # the records alone are ten times as much
    assert purged.stdout.startswith("10000 dead letters")


def test_a_key_that_is_no_stream(letters: Letters) -> None:
    letters.redis.set(keys.dead_key(letters.job), "text")

    for words in (("list",), ("show", "1-1"), ("replay", "--all"), ("purge", "--all"), ("export", "--all", "-o", "-")):
        result = letters.run(*words)
        assert result.exit_code == 1
        assert result.stderr.splitlines() == [
            f"the key {keys.dead_key(letters.job)} in Redis is a string and not a stream of dead letters: delete it"
        ]


def test_redis_that_is_away_or_does_not_let_us_in(own_redis: PrivateRedis) -> None:
    letters = Letters(own_redis, "job")
    letters.redis.config_set("requirepass", "of this test's own server")
    locked = letters.run("list")
    own_redis.stop()
    away = letters.run("list")

    assert (locked.exit_code, away.exit_code) == (6, 6)
    assert ["refused" in each.stderr for each in (locked, away)] == [False, True]
    assert all("check redisUrl and redisPassword" in each.stderr for each in (locked, away))
    assert len(away.stderr.splitlines()) == len(locked.stderr.splitlines()) == 1


def run_without_where(*words: str) -> Result:
    return CliRunner().invoke(main, ["dead-letters", *words], catch_exceptions=False)


def test_job_and_redis_are_those_of_the_last_start_here_or_of_the_config(letters: Letters) -> None:
    letters.put_named("a")
    nobody = "redis://127.0.0.2:1/0"
    Path("config.yaml").write_text(f"modelPath: m\njobName: {letters.job}\nredisUrl: {nobody}\n")
    from_config = run_without_where("list")
    with_url = run_without_where("list", "--redis-url", letters.server.url)
    Path("other.yaml").write_text(f"jobName: {letters.job}\nredisUrl: {letters.server.url}\n")
    from_other = run_without_where("list", "-c", "other.yaml")
    here = Job.of(letters.job)
    flags = [f"--redis-url={letters.server.url}"]
    here.record(NodeRecord(letters.job, here.node_id(), 1, None, flags, letters.server.url, None, 10, 1))
    from_record = run_without_where("list")

    assert from_config.exit_code == 6
    assert "127.0.0.2:1" in from_config.stderr
    for result in (with_url, from_other, from_record):
        assert f"Dead letters of job {letters.job}: 1 in all" in result.stdout


def test_a_wrong_config_is_named(letters: Letters) -> None:
    del letters
    Path("config.yaml").write_text("redisUrll: x\n")
    result = run_without_where("list", "--job", "j")

    assert result.exit_code == 4
    assert "redisUrll" in result.stderr


def test_wrong_words() -> None:
    for words in (
        ("show",),
        ("show", "x"),
        ("replay",),
        ("purge", "--all", "1-1"),
        ("purge", "--all", "--older-than", "7"),
    ):
        assert run_without_where(*words).exit_code == 2


def test_letters_that_are_no_letters_do_not_stop_the_others(letters: Letters) -> None:
    letters.put_named("a")
    letters.redis.xadd(keys.dead_key(letters.job), {"no": "reason"}, id=f"{DIED_MS + 1}-0")
    letters.put_named("b", died_ms=DIED_MS + 2)
    found: list[Any] = json.loads(letters.run("list", "--json").stdout)["letters"]

    assert [(each["uri"], each["code"]) for each in found] == [
        ("b", "WorkerDied"),
        ("", "Unreadable"),
        ("a", "WorkerDied"),
    ]


@pytest.mark.parametrize("command", ["show", "replay", "purge", "export"])
def test_a_shell_offers_the_newest_ids(letters: Letters, command: str) -> None:
    first, second = letters.put_named("one", "t\x1b[2Jwo")
    where = " ".join(letters.where)

    offered = completed(f"cluster-serving dead-letters {command} {where} ")

    assert offered == [(second, r"WorkerDied t\x1b[2Jwo"), (first, "WorkerDied one")]
    assert [word for word, _ in completed(f"cluster-serving dead-letters {command} {where} {first}")] == [first]


def test_a_shell_offers_uris_that_it_does_not_run(letters: Letters) -> None:
    prefix = keys.result_prefix(letters.job)
    for uri in ("cat-1", "cat-2", "dog", "cat $(date)", "cat;ls", "cat\n", "cat*"):
        letters.redis.hset(prefix + uri, "value", b"")
    where = " ".join(letters.where)

    assert [word for word, _ in completed(f"cluster-serving trace {where} cat")] == ["cat-1", "cat-2"]
    assert completed(f"cluster-serving trace {where} *") == []
    for uri in letters.redis.scan_iter(f"{prefix}*"):
        letters.redis.delete(uri)
