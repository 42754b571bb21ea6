"""Model that a job or a frontend serves, for commands that send records."""

from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING
from urllib.parse import quote

import msgspec

from cluster_serving.client.errors import RecordFailed
from cluster_serving.client.http.frontend import Frontend
from cluster_serving.client.keys import node_key
from cluster_serving.client.protocol.absence import Inquiry
from cluster_serving.client.protocol.redis_refused import RedisRefused
from cluster_serving.client.servers.process.exit_codes import Fault, NotStarted
from cluster_serving.client.tensor_spec import TensorSpec
from cluster_serving.client.wire.heartbeat import Heartbeat
from cluster_serving.node.commands.records_given import BadRecord

if TYPE_CHECKING:
    from cluster_serving.node.commands.job_in_redis import Reached

_REASON = 400


class Model(msgspec.Struct, frozen=True):
    """Model in the answer to `GET /models`."""

    name: str = msgspec.field(name="modelName")
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]

    @property
    def path(self) -> str:
        """Path of the route that predicts."""
        return f"/models/{quote(self.name, safe='')}/predict"


def serving_nodes(reached: "Reached") -> list[Heartbeat]:
    """Return the nodes that take records of a job. Empty: the heartbeats do not tell, or the user of Redis may not read them.

    Raises:
        NotStarted: no node serves the job.
    """
    inquiry = Inquiry(reached.job, reached.config.redis_settings().describe())
    replies = reached.link.exchange(*inquiry.for_reason())
    if any(isinstance(reply, RedisRefused) for reply in replies):
        return []
    own = [key for key in replies[-1][::2] if key.startswith(node_key(reached.job, "").encode())]
    beats = [beat for key in own if (beat := reached.link.call("GET", key))]
    if not beats:
        raise NotStarted(inquiry.read_reason(replies))
    nodes: list[Heartbeat] = []
    for beat in beats:
        with suppress(msgspec.MsgspecError):  # of another release
            nodes.append(Heartbeat.decode(beat))
    if nodes and not any(node.is_callable for node in nodes):
        states = ", ".join(f"{node.node} is {node.state}" for node in nodes)
        raise NotStarted(f"no node of job {reached.job} is ready: {states}")
    return [node for node in nodes if node.is_callable]


def inputs_of(nodes: Sequence[Heartbeat]) -> tuple[TensorSpec, ...]:
    """Return the inputs of the model of a job. Empty: not known, or up to the user's own `preprocess`."""
    return next((node.inputs for node in nodes if not node.raw), ())


def model_of(frontend: Frontend, name: str | None, timeout_s: float) -> Model:
    """Return a model of a frontend. Without a name, the only model.

    Raises:
        NotStarted: the frontend does not have the model, or has no model.
        BadRecord: the name is missing and there are several models.
        Fault: no frontend of Cluster Serving answers.
        ClusterServingError: an error of `Frontend.ask`.
    """
    try:
        found = frontend.ask("/models" if name is None else f"/models/{quote(name, safe='')}", timeout_s).document
        models = msgspec.convert(found, list[Model])
    except RecordFailed as error:
        reason = " ".join(error.reason.split())[:_REASON]  # any server may answer with a page of HTML
        raise (NotStarted if error.code == "HTTP 404" else Fault)(reason) from error
    except msgspec.ValidationError as error:
        raise Fault(f"no frontend of Cluster Serving answers there: {error}") from error
    names = sorted({model.name for model in models})
    if not names:
        raise NotStarted("the frontend has no model")
    if len(names) > 1:
        raise BadRecord(f"the frontend has several models, so name one: {', '.join(names)}")
    return models[-1]
