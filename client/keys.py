"""Every Redis key and stream field, and what it holds.

    <job>                                   stream    one entry a request; finished entries are deleted: XLEN is the backlog
    cluster-serving_<job>:<uri>             hash      one result, until it is read or its time to live ends
    cluster-serving.reply_<job>:<client>    stream    results for one client that waits for them; expires with the client
    cluster-serving.node_<job>:<node>       string    JSON heartbeat of one node; expires after three missed ones
    cluster-serving.nodes                   zset      the key of each heartbeat, by the Unix time in s at which it was told last
    cluster-serving.reply_:<frontend>       stream    results for one process of a frontend, of every job that it serves
    cluster-serving.limits_<job>            hash      what admission checks: `maxQueueLength`
    cluster-serving.full_<job>              string    why nothing is admitted now; a node sets it while Redis is short of memory
    cluster-serving.dead_<job>              stream    dead letters, the newest `maxDeadLetters`
    model_secured                           hash      `secret` and `salt` of the encrypted models that wait for them

Only results live below `cluster-serving_<job>:`, because clients of the original read and delete all that they find there.
On Redis Cluster, name the job with a hash tag (`{my_job}`): all its keys then lie on one shard.

Request fields, native dialect (values are bytes; `<name>` is a model input's name):

    uri                     the record's name, chosen by the client
    tensor:<name>           Arrow IPC Tensor message
    bool:<name>             the same of dtype uint8 for a bool array, which Arrow has no tensor of
    image:<name>            an encoded image: JPEG, PNG, ...
    string:<name>           JSON: a string or a nested list of strings
    sparse.indices:<name>   Arrow IPC Tensor message, int64 (rank, nnz)
    sparse.values:<name>    the same, (nnz,)
    sparse.shape:<name>     the same, int64 (rank,)
    reply                   key of the stream that the result goes to; without it: the result hash
    traceparent             W3C Trace Context of the call, for the logs of the node
    deadline                Unix time in ms on the clock of Redis, or + and how many ms after the entry was made; a record that
                            no node has begun by then is answered DeadlineExceeded

Request fields, original dialect: `uri`, `data` (base64 of an Arrow stream), and optionally `serde`.

Result fields: `tensor:<output>`, `bool:<output>`, `string:<output>` (JSON), or `value` (JSON of a filter or of `postprocess`;
in the original dialect a base64 Arrow stream, or a filter's text); `error` (JSON: code, message) instead of them. Native
results have a `receipt` (JSON): `entry`, the id in the stream; `read_ms`, Unix time on Redis' clock when a reader had it;
`deliveries`, where there was more than one; `node`, `worker`, `model` (its hash); `batch`, its rows; `filled_ms`, Unix time on
Redis' clock when the batch was closed; `wait_ms` for a worker, `run_ms`, and `publish_ms` for the writer; `ttl_ms`, the time to
live of a result hash; in a hash, which forgets the order of its fields, `outputs`: their names where there are several.

A reply stream has the results of a batch in one entry: `reply.py`.

A dead letter has the field `dead_letter` first (JSON: `code`, `message`, `traceback`, `entry`, `node`, `deliveries`, `model`,
`died_ms`; see `DeadLetter` in node/writer/dead_letters.py), and behind it the request's fields exactly as they came.
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

TENSOR: Final = b"tensor:"
BOOL: Final = b"bool:"
IMAGE: Final = b"image:"
STRING: Final = b"string:"
SPARSE_INDICES: Final = b"sparse.indices:"
SPARSE_VALUES: Final = b"sparse.values:"
SPARSE_SHAPE: Final = b"sparse.shape:"

VALUE: Final = b"value"
ERROR: Final = b"error"
RECEIPT: Final = b"receipt"
BATCH: Final = b"batch"
DEAD_LETTER: Final = b"dead_letter"

NODES: Final = "cluster-serving.nodes"

MODEL_SECURED: Final = "model_secured"
SECRET: Final = "secret"  # noqa: S105 - the name of a field
SALT: Final = "salt"

MAX_URI_BYTES: Final = 4096


def result_prefix(job: str) -> str:
    """The prefix of every result hash of a job."""
    return f"cluster-serving_{job}:"


def reply_key(job: str, client: str) -> str:
    """The reply stream of one client."""
    return f"cluster-serving.reply_{job}:{client}"


def frontend_reply_key(frontend: str) -> str:
    """The reply stream of one process of a frontend."""
    return reply_key("", frontend)


def node_key(job: str, node: str) -> str:
    """The heartbeat of one node."""
    return f"cluster-serving.node_{job}:{node}"


def limits_key(job: str) -> str:
    """What admission checks."""
    return f"cluster-serving.limits_{job}"


def full_key(job: str) -> str:
    """There while nothing is admitted, whatever the stream holds: says why."""
    return f"cluster-serving.full_{job}"


def dead_key(job: str) -> str:
    """The stream of dead letters."""
    return f"cluster-serving.dead_{job}"
