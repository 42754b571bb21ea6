"""Wires: the mark in the key of a reply stream, and releases that do or do not understand each other."""

from typing import Any

import numpy as np
import pytest
import structlog
from hypothesis import given
from hypothesis import strategies as st

from cluster_serving import __version__
from cluster_serving.client import keys
from cluster_serving.client.errors import CodecError, ErrorCode, RecordFailed
from cluster_serving.client.protocol.results import plain
from cluster_serving.client.servers.picture import JobPicture, limit
from cluster_serving.client.wire.heartbeat import Heartbeat, Release
from cluster_serving.client.wire.load import Load
from cluster_serving.client.wire.reply import read_replies
from cluster_serving.client.wire.values import encode_record
from cluster_serving.frontend.job import jobs_of, read_nodes
from cluster_serving.node.models.base import TensorSpec
from cluster_serving.node.reader.decoding import RecordDecoder
from support.heartbeats import described

FOREIGN = keys.WIRE + 2
NEXT = keys.WIRE + 1
OTHER = f"0.3.0 (wire {FOREIGN})"


@pytest.mark.parametrize(
    ("key", "wire"),
    [
        (keys.reply_key("job", "client").encode(), keys.WIRE),
        (b"cluster-serving.reply_job:1a2b3c", 1),
        (b"cluster-serving.reply_:1a2b3c", 1),
        (b"cluster-serving.reply_a@7:1a2b3c", 1),
        (b"cluster-serving.reply_job:c@7", 7),
        (b"cluster-serving.reply_job:c@3@2", 2),
        (b"cluster-serving.reply_job:c@", 1),
        (b"cluster-serving.reply_job:c@two", 1),
        (b"cluster-serving.reply_job:c@" + 4000 * b"9", 999_999_999),
    ],
)
def test_the_key_of_a_reply_stream_has_the_wire_of_its_reader(key: bytes, wire: int) -> None:
    assert keys.wire_of(key) == wire


@given(st.text(st.characters(exclude_characters=":", codec="utf-8")), st.text(st.characters(codec="utf-8")))
def test_whatever_job_and_client_are_called(job: str, client: str) -> None:
    key = keys.reply_key(job, client)

    assert key.startswith(keys.reply_prefix(job))
    assert keys.wire_of(key.encode()) == keys.WIRE


@pytest.mark.parametrize(
    ("wire", "understood"),
    [(0, False), (keys.OLDEST_WIRE, True), (keys.WIRE, True), (NEXT, True), (FOREIGN, False), (10**9, False)],
)
def test_neighbouring_wires_are_understood(wire: int, understood: bool) -> None:
    assert keys.understood(wire) is understood


def entry(wire: int | None) -> list[bytes]:
    """Fields of a record of a client with this wire, or of the first release."""
    key = keys.reply_prefix("job") + "c" + ("" if wire is None else f"@{wire}")
    return [*encode_record("u", {"x": np.ones(2, np.float32)}), keys.REPLY, key.encode()]


def decoder() -> RecordDecoder:
    return RecordDecoder([TensorSpec("x", "float32", (None, 2))], keys.reply_prefix("job").encode())


@pytest.mark.parametrize("wire", [None, keys.OLDEST_WIRE, keys.WIRE, NEXT])
def test_a_node_answers_clients_of_neighbouring_wires(wire: int | None) -> None:
    node = decoder()

    assert node.decode(b"1-1", entry(wire), 0).error is None
    assert node.decode_alike([b"1-2"], [entry(wire)], 0) is not None


def test_a_node_tells_a_client_of_a_foreign_wire_both_versions() -> None:
    node = decoder()
    node.decode(b"1-1", entry(None), 0)
    with structlog.testing.capture_logs() as logged:
        record, _ = node.decode(b"1-2", entry(FOREIGN), 0), node.decode(b"1-3", entry(FOREIGN), 0)

    assert record.error is not None
    code, message = record.error
    assert (code, record.uri, record.reply) == (ErrorCode.OTHER_VERSION, b"u", entry(FOREIGN)[-1])
    assert all(part in message for part in (f"wire {FOREIGN}", __version__, f"to {keys.WIRE}"))
    assert [(line["log_level"], line["reason"]) for line in logged] == [("warning", message)]
    assert node.decode_alike([b"1-4"], [entry(FOREIGN)], 0) is None


def test_foreign_wires_do_not_fill_the_log() -> None:
    node = decoder()
    with structlog.testing.capture_logs() as logged:
        for wire in range(FOREIGN, FOREIGN + 1000):
            node.decode(b"1-1", entry(wire), 0)

    assert len(logged) == 16


URI = "0f1e2d3c4b5a6978-4"
OF_809E0B7 = [b"uri", URI.encode(), b"tensor:y", b"...", b"receipt", b"{}"]
"""An entry as nodes wrote it before there was a version on the wire."""


@pytest.mark.parametrize("fields", [OF_809E0B7, [b"packed", b"{}", URI.encode(), b"\x90"]])
def test_a_result_of_an_unknown_form_is_a_codec_error_of_its_record(fields: list[bytes]) -> None:
    results = {result.uri: result for result in [reply.result() for reply in read_replies([(b"1-0", fields)])]}

    with pytest.raises(CodecError, match="a node of another version has answered") as caught:
        plain(results[URI])
    assert isinstance(caught.value, RecordFailed)
    assert caught.value.code == ErrorCode.UNREADABLE
    assert all(part in str(caught.value) for part in (URI, repr(fields[0].decode()), __version__))


@given(
    st.lists(st.binary(min_size=1), min_size=1).filter(lambda parts: parts[0] != keys.BATCH), st.integers(min_value=1)
)
def test_whatever_the_form_is_every_uri_in_it_fails(parts: list[bytes], place: int) -> None:
    parts.insert(1 + place % len(parts), URI.encode())

    found = [reply.result() for reply in read_replies([(b"1-0", parts)])]

    assert URI in [result.uri for result in found]
    assert all(result.error and result.error[0] == ErrorCode.UNREADABLE for result in found)


def test_large_parts_of_an_unknown_form_are_no_uris() -> None:
    assert [reply.uri for reply in read_replies([(b"1-0", [b"data", bytes(5000)])])] == [b"data"]


def test_a_heartbeat_has_version_and_wire() -> None:
    beat = described(version="0.2.0", wire=2)

    assert str(Heartbeat.decode(beat.encode())) == "0.2.0 (wire 2)"
    assert str(Release.read(beat.encode())) == "0.2.0 (wire 2)"
    assert str(Release.read(b'{"job":"j","node":"n"}')) == "before 0.1.0 (wire 1)"
    assert Release(job="j", node="n", version=__version__, wire=keys.WIRE).is_own


@pytest.mark.parametrize(
    ("damage", "left"),
    [
        ({"rows": None, "answered": "x", "backlog": [1], "restarts": 10**400}, {"failed"}),
        ({"histograms": []}, {"rows", "answered", "failed", "backlog", "restarts"}),
        ({"histograms": {"inference": None}}, {"rows", "answered", "failed", "backlog", "restarts"}),
    ],
)
def test_a_figure_that_is_no_number_is_left_out(damage: dict[str, Any], left: set[str]) -> None:
    counts = dict.fromkeys(("rows", "answered", "failed", "backlog", "restarts"), 7)
    load = Load(records_s=1, rows=4)
    good, damaged = (
        Heartbeat.decode(described(figures=figures, load=load, batch_size=size).encode())
        for figures, size in ((counts, 8), (counts | damage, 0))
    )

    assert {name for name in counts if name in damaged.figures} == left
    assert damaged.figures["histograms"] == {}
    assert damaged.figures["state"] == "ready"
    picture = JobPicture.of([good, damaged])
    assert picture is not None
    assert (picture.backlog, picture.fill) == (7 if "backlog" in left else 0, 0.5)
    assert limit(picture).code != "idle"


def node_of(name: str, state: str = "ready", **fields: Any) -> bytes:
    return described(node=name, state=state, **fields).encode()


@pytest.mark.parametrize("states", [("ready", "ready"), ("ready", "unready"), ("unready", "unready")])
def test_a_frontend_counts_nodes_that_it_understands(states: tuple[str, str]) -> None:
    foreign = node_of("a", states[0], version="0.3.0", wire=FOREIGN, started_ms=5)
    own = node_of("b", states[1], version=__version__, wire=keys.WIRE)

    job = jobs_of(read_nodes([foreign, own]))["job"]

    assert job.ready is (states[1] == "ready")
    assert job.described.node == ("b" if job.ready else job.nodes[0].node)
    assert (
        f"a is {states[0]}, but this frontend, of version {__version__} (wire {keys.WIRE}), cannot read version {OTHER}"
        in job.states
    )


@pytest.mark.parametrize(
    ("wire", "level", "event"),
    [
        (NEXT, "info", "nodes are of another version"),
        (FOREIGN, "warning", "nodes are of a version whose answers cannot be read"),
    ],
)
def test_the_frontend_logs_each_release_once(wire: int, level: str, event: str) -> None:
    beats = [node_of(f"n{number}", version="0.4.0", wire=wire) for number in range(200)]
    with structlog.testing.capture_logs() as logged:
        for _ in range(3):
            read_nodes([*beats, node_of("own", version=__version__, wire=keys.WIRE)])

    assert [(line["log_level"], line["event"], line["nodes"]) for line in logged] == [
        (level, event, f"0.4.0 (wire {wire})")
    ]


@pytest.mark.parametrize("beat", [b"", b"{", b"[]", b'{"job":"\xff"}', b'{"job":"a:b","node":"n"}'])
def test_a_heartbeat_of_no_use_is_left_out(beat: bytes) -> None:
    assert read_nodes([beat]) == []


def test_of_a_heartbeat_that_cannot_be_read_the_release_is_known() -> None:
    (node,) = read_nodes([b'{"job":"j","node":"n","version":"9.0.0","wire":9,"state":{}}'])

    assert str(node) == "9.0.0 (wire 9)"
    assert jobs_of([node]) == {}
