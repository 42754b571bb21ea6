"""Makes the children of one lane, and tells each what it needs to know."""

from collections.abc import Sequence
from threading import Thread

import structlog

from cluster_serving.node.arrangement import Arrangement
from cluster_serving.node.bell import Bell
from cluster_serving.node.child import Child, Placement
from cluster_serving.node.config import Config
from cluster_serving.node.models.base import ModelError, TensorSpec
from cluster_serving.node.models.detect import Detected
from cluster_serving.node.models.fingerprint import fingerprint
from cluster_serving.node.ring import Ring
from cluster_serving.node.specs import DecodeOptions, LaneSpec, ReaderSpec, Runtime, WorkerSpec, WriterSpec

log = structlog.get_logger(__name__)

# The limit of processing/image.py; OpenCV reads it when it is imported.
_WORKER_ENVIRONMENT = {"OPENCV_IO_MAX_IMAGE_PIXELS": "178956970"}


def consumer_of(node: str, generation: int) -> str:
    """The name under which a lane reads: `<node>` and `<node>.b` in turn.

    While a node changes, two of its lanes read at the same time, and what is pending under a name belongs to one of them. A
    generation begins when the one before the last has ended: two names are enough, and they stay the same for ever.
    """
    return f"{node}.b" if generation % 2 else node


class Crew:
    """What all children of a lane have in common.

    Args:
        config: a complete one.
        model: what they serve.
        node: the name of the node.
        generation: how many lanes the node has had before this one.
        arrangement: the threads of each worker, and the cores of each process.
        ring: of the lane.
        bells: of the reader, the writer, and each worker.
    """

    def __init__(
        self,
        config: Config,
        model: Detected,
        node: str,
        generation: int,
        arrangement: Arrangement,
        ring: Ring,
        bells: Sequence[Bell],
    ) -> None:
        self._config = config
        self._model = model
        self._consumer = consumer_of(node, generation)
        self.arrangement = arrangement
        self._descriptors = [ring.fd, *(bell.fileno() for bell in bells)]
        self._environment = {"CLUSTER_SERVING_LOG_LEVEL": config.log_level}
        self._lane = LaneSpec(
            job=config.job_name,
            node=node,
            redis=config.redis_settings(),
            geometry=ring.geometry,
            ring_fd=ring.fd,
            reader_bell=bells[0].fileno(),
            writer_bell=bells[1].fileno(),
            worker_bells=tuple(bell.fileno() for bell in bells[2:]),
        )
        self.model_hash = ""
        # Beside the workers that load: a model may have gigabytes.
        self._hashing = Thread(target=self._hash, daemon=True)
        self._hashing.start()

    @property
    def hashing(self) -> bool:
        """Whether the fingerprint, which the writer has to be told, is still being taken."""
        return self._hashing.is_alive()

    def worker(self, index: int, runtime: Runtime) -> Child:
        """Start a worker."""
        config = self._config
        spec = WorkerSpec(
            lane=self._lane,
            worker=index,
            model=self._model,
            options=config.load_options(self.arrangement.threads),
            runtime=runtime,
            images=config.image_options(),
            post_processing=config.post_processing,
            labels=config.labels,
            processing=config.processing,
            model_secrets=config.model_secrets(),
            record_secrets=config.record_secrets(),
        )
        environment = self._environment | _WORKER_ENVIRONMENT
        placement = Placement(self.arrangement.places.workers[index], self.arrangement.threads)
        return Child("worker", f"worker-{index}", spec, placement, self._descriptors, environment)

    def reader(self, inputs: tuple[TensorSpec, ...], raw: bool) -> Child:
        """Start a reader for a model with these inputs; `raw`: records go to the workers as they come."""
        config = self._config
        spec = ReaderSpec(
            lane=self._lane,
            consumer=self._consumer,
            inputs=inputs,
            max_batch_delay_ms=config.max_batch_delay_ms,
            decoding=DecodeOptions(
                already_batched=config.input_already_batched,
                sparse_layout=config.sparse_layout,
                raw=raw,
                encrypted=config.record_encrypted,
            ),
            lease_s=config.lease_s,
            max_deliveries=config.max_deliveries,
        )
        return Child(
            "reader", "reader", spec, Placement(self.arrangement.places.others), self._descriptors, self._environment
        )

    def writer(self) -> Child:
        """Start a writer, when the fingerprint has been taken."""
        spec = WriterSpec(
            lane=self._lane,
            result_ttl_ms=round(self._config.result_time_to_live_s * 1000),
            legacy_filter_text=self._config.legacy_filter_text,
            model_hash=self.model_hash,
            max_dead_letters=self._config.max_dead_letters,
        )
        return Child(
            "writer", "writer", spec, Placement(self.arrangement.places.others), self._descriptors, self._environment
        )

    def _hash(self) -> None:
        try:
            self.model_hash = fingerprint(self._model)
        except ModelError as error:
            log.warning("the model has no fingerprint", reason=str(error))
