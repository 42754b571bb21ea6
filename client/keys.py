"""Redis keys and stream fields, and their contents.

    <job>                                   stream    one entry per request. Finished entries are deleted: XLEN is the backlog
    cluster-serving_<job>:<uri>             hash      one result, until a client takes it or its time to live ends
    cluster-serving.reply_<job>:<client>@1  stream    results for one waiting client, or for the calls of one frontend process.
                                                      Expires with the client. Ends in the client's wire (below)
    cluster-serving.reply_<job>:later-<x>   hash      one call over HTTP that is answered later: facts of the call, and the result
                                                      of each record by uri (below). <x> is a digest of the secret in the call's id
    cluster-serving.calls_<owner>           zset      ids of the calls of one API key that are answered later, scored by the Unix
                                                      time in ms until which a call is kept
    cluster-serving.callbacks               zset      keys of the finished calls whose callers want the result posted, scored by
                                                      the Unix time in ms of the next attempt
    cluster-serving.node_<job>:<node>       string    JSON heartbeat of one node, expires after three missed heartbeats
    cluster-serving.nodes                   zset      keys of all heartbeats, scored by the Unix time in s of the last heartbeat
    cluster-serving.reply_:<frontend>       stream    results for one frontend process of the release before, of every job
    cluster-serving.limits_<job>            hash      limits for admission: `maxQueueLength`
    cluster-serving.full_<job>              string    reason to admit no record now, set by a node while Redis is short of memory
    cluster-serving.dead_<job>              stream    the newest dead letters: `maxDeadLetters`, within `maxDeadLetterBytes`
    cluster-serving.history_<job>           stream    the last hour of a job for the dashboard: JSON points, of frontends
    cluster-serving.decisions_<job>         stream    the autoscaler's changes of the numbers of tasks in the last hour: `words`
    cluster-serving.frontends_<job>         stream    use of each process of each frontend for the autoscaler, of the last minutes:
                                                      `frontend`, `process`, `cpu` (share of a core), `open` (requests)
    cluster-serving.slow_<job>              zset      the slowest records of the last hour, scored by their ms: wire/slow_record.py
    model_secured                           hash      `secret` and `salt` for encrypted models that wait for both
    image_stream, tensor_stream             stream    records of clients before 0.9 of the original. A node with `legacyStreams`
                                                      moves them to the stream of its job
    result:<uri>                            hash      one result for a client before 0.9

The name of a job has no colon. Otherwise the keys of job `a:b` would be keys of job `a` too.
Only results have the prefix `cluster-serving_<job>:`, because clients of the original read and delete every key with the prefix.
One server holds all keys, because one script reads and writes several of them. Nodes and frontends refuse a Redis Cluster.

Request fields, native dialect (values are bytes, `<name>` is a model input's name):

    uri                     the record's name, chosen by the client
    tensor:<name>           Arrow IPC Tensor message
    bool:<name>             Arrow IPC Tensor message of dtype uint8 for a bool array, because Arrow has no bool tensors
    compressed:<name>       a tensor or an array of bools with its values compressed: wire/compression.py. Only nodes that have
                            the codec in their heartbeats read it
    image:<name>            an encoded image: JPEG, PNG, ...
    string:<name>           JSON: a string or a nested list of strings
    sparse.indices:<name>   Arrow IPC Tensor message, int64 (rank, nnz)
    sparse.values:<name>    Arrow IPC Tensor message, (nnz,)
    sparse.shape:<name>     Arrow IPC Tensor message, int64 (rank,)
    reply                   key of the reply stream, or of the call answered later, for the result. Without the field, the result
                            goes to a result hash
    traceparent             W3C Trace Context of the call, for the logs and the spans of the node
    deadline                Unix time in ms on the clock of Redis, or + and the ms after the entry was made. A record not begun
                            by a node before the deadline is answered DeadlineExceeded

Request fields, original dialect: `uri`, `data` (base64 of an Arrow stream), and optionally `serde`. Before 0.9: `uri`, and
`image` (base64 of an encoded image) or `tensor` (as `data`).

Result fields:

    tensor:<output>         Arrow IPC Tensor message
    bool:<output>           Arrow IPC Tensor message of dtype uint8
    string:<output>         JSON
    value                   JSON of a filter or of `postprocess`. Original dialect: a base64 Arrow stream, or a filter's text
    error                   JSON: code, message. Takes the place of all fields above
    bound                   `Receipt.bound` in a reply. In a hash, the receipt holds it
    receipt                 JSON, for native results only: `Receipt` in wire/receipt.py

One entry of a reply stream holds the results of a batch: see wire/reply.py. The wire is the number of the newest form of such
entries that a release knows. A release reads and writes the form before too, so that releases with neighbouring wires understand
each other: a node writes the older one of its own newest form and the client's.

The hash of a call that is answered later has a field for each fact of the call (frontend/models/later/kept.py), among them

    left                    number of records without a result, which a node counts down
    callback                URL for the result. A node then adds the key of a finished call to the callbacks, and counts `finished`

and for each finished record its uri with a MessagePack list of the result's fields: name, value, ...

A dead letter begins with the field `dead_letter` (JSON: `Reason` in wire/dead_letter.py). The fields of the request follow
unchanged, or after a field `dead_letter_cut` with their first bytes.
"""

from typing import Final

DEFAULT_JOB: Final = "serving_stream"
GROUP: Final = "serving"

URI: Final = b"uri"
REPLY: Final = b"reply"
DEADLINE: Final = b"deadline"
TRACEPARENT: Final = b"traceparent"
DATA: Final = b"data"
SERDE: Final = b"serde"
LEGACY_IMAGE: Final = b"image"
LEGACY_TENSOR: Final = b"tensor"

TENSOR: Final = b"tensor:"
BOOL: Final = b"bool:"
COMPRESSED: Final = b"compressed:"
IMAGE: Final = b"image:"
STRING: Final = b"string:"
NESTED: Final = b"nested:"
SPARSE_INDICES: Final = b"sparse.indices:"
SPARSE_VALUES: Final = b"sparse.values:"
SPARSE_SHAPE: Final = b"sparse.shape:"

VALUE: Final = b"value"
ERROR: Final = b"error"
BOUND: Final = b"bound"
ORDER: Final = b"order"
RECEIPT: Final = b"receipt"
BATCH: Final = b"batch"
DEAD_LETTER: Final = b"dead_letter"

NODES: Final = "cluster-serving.nodes"
CALLBACKS: Final = "cluster-serving.callbacks"

LEFT: Final = b"left"
CALLBACK: Final = b"callback"
FINISHED: Final = b"finished"

LEGACY_STREAMS: Final = ("image_stream", "tensor_stream")
LEGACY_RESULTS: Final = "result:"
"""Prefix of the result hashes for clients before 0.9, of every job."""

MODEL_SECURED: Final = "model_secured"
SECRET: Final = "secret"  # noqa: S105 - the name of a field
SALT: Final = "salt"

MAX_URI_BYTES: Final = 4096

WIRE: Final = 1
"""Newest form of the entries of reply streams that this release reads and writes."""
OLDEST_WIRE: Final = 1
"""Oldest form of the entries of reply streams that this release reads and writes."""


def check_job(name: object) -> str:
    """Return the name of a job.

    Raises:
        ValueError: the name is no text, is empty, or has a colon. The message goes on behind "name is ..., but".
    """
    if not isinstance(name, str):
        raise ValueError("must be a text")
    if not name.strip():
        raise ValueError("must not be empty")
    if ":" in name:
        other = name.partition(":")[0]
        raise ValueError(f"must have no ':', because results of {name} would be results of the job {other} too")
    return name


def result_prefix(job: str) -> str:
    """Return the prefix of a job's result hashes."""
    return f"cluster-serving_{job}:"


def reply_prefix(job: str) -> str:
    """Return the prefix of a job's reply streams."""
    return f"cluster-serving.reply_{job}:"


def reply_key(job: str, client: str) -> str:
    """Return the key of the reply stream of a client of this release."""
    return f"{reply_prefix(job)}{client}{_MARK}"


def later_key(job: str, digest: str) -> str:
    """Return the key of a call that is answered later, by the digest of its secret."""
    return f"{reply_prefix(job)}{_LATER.decode()}{digest}"


def is_later(reply_key: bytes) -> bool:
    """Return whether a result goes to a call that is answered later, and not to a reply stream."""
    return reply_key.partition(b":")[2].startswith(_LATER)


def calls_key(owner: str) -> str:
    """Return the key of the calls of one API key, by the digest of the API key."""
    return f"cluster-serving.calls_{owner}"


def wire_of(reply_key: bytes) -> int:
    """Return the wire of the client that reads a reply stream. The first release, of wire 1, ends its keys without it."""
    wire = reply_key.rpartition(b"@")[2]
    return int(wire[:_DIGITS]) if wire.isdigit() else 1


def understood(wire: int) -> bool:
    """Return whether this release and a release of the given wire have a form of replies in common."""
    return OLDEST_WIRE <= wire <= WIRE + 1


def can_read(reply_key: bytes) -> bool:
    """Return whether the client that reads a reply stream reads a form that this release writes."""
    return reply_key.endswith(_OWN_END) or understood(wire_of(reply_key))


_LATER: Final = b"later-"
_DIGITS: Final = 9
_MARK: Final = f"@{WIRE}"
_OWN_END: Final = _MARK.encode()  # nearly every key ends so, and the look is cheap
OLD_FRONTENDS: Final = reply_prefix("")
"""Prefix of the reply streams of frontends of the release before."""


def node_key(job: str, node: str) -> str:
    """Return the key of a node's heartbeat."""
    return f"cluster-serving.node_{job}:{node}"


def job_of_node(key: str) -> str:
    """Return the job in the key of a node's heartbeat."""
    return key.removeprefix(node_key("", "")[:-1]).rpartition(":")[0]


def limits_key(job: str) -> str:
    """Return the key of a job's admission limits."""
    return f"cluster-serving.limits_{job}"


def full_key(job: str) -> str:
    """Return the key that closes admission while it exists, whatever the stream holds. Its text is the reason."""
    return f"cluster-serving.full_{job}"


def history_key(job: str) -> str:
    """Return the key of the last hour of a job, for the dashboard."""
    return f"cluster-serving.history_{job}"


def decisions_key(job: str) -> str:
    """Return the key of the autoscaler's decisions about a job, for the dashboard."""
    return f"cluster-serving.decisions_{job}"


def frontends_key(job: str) -> str:
    """Return the key of the frontends' reports of their use, for the autoscaler."""
    return f"cluster-serving.frontends_{job}"


def slow_key(job: str) -> str:
    """Return the key of a job's slowest records of the last hour."""
    return f"cluster-serving.slow_{job}"


def dead_key(job: str) -> str:
    """Return the key of a job's dead-letter stream."""
    return f"cluster-serving.dead_{job}"
