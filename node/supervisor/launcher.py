"""Launcher of the children of one lane: builds the spec of each child and starts the process."""

from collections.abc import Mapping, Sequence

from cluster_serving.node.config.arrangement import Arrangement
from cluster_serving.node.processing.options import MAX_PIXELS, DecodeOptions
from cluster_serving.node.reader.spec import ReaderSpec
from cluster_serving.node.ring.bell import Bell
from cluster_serving.node.ring.ring import Ring
from cluster_serving.node.ring.spec import LaneSpec
from cluster_serving.node.supervisor.child import Child, Placement
from cluster_serving.node.supervisor.inheritance import LaneName
from cluster_serving.node.supervisor.served_model import ServedModel
from cluster_serving.node.supervisor.stderr import StandardError
from cluster_serving.node.topology.placement import LanePlaces
from cluster_serving.node.worker.spec import WorkerSpec
from cluster_serving.node.writer.spec import WriterSpec

# OpenCV reads the variables on import. OpenCV's errors are exceptions too, but for the warnings of its TIFF decoder, which any
# client can cause.
WORKER_ENVIRONMENT = {"OPENCV_IO_MAX_IMAGE_PIXELS": str(MAX_PIXELS), "OPENCV_LOG_LEVEL": "FATAL"}


class Launcher:
    """Launcher of the children of a lane.

    Args:
        served_model: model and configuration to serve.
        arrangement: threads and cores of each process, and the NUMA domain of the lane.
        lane: name of the lane.
        first_worker: number of the lane's first worker among the workers of the node.
        ring: ring of the lane.
        bells: bells of the reader, of the writer, and of each worker that the lane may have.
    """

    def __init__(
        self,
        served_model: ServedModel,
        arrangement: Arrangement,
        lane: LaneName,
        first_worker: int,
        ring: Ring,
        bells: Sequence[Bell],
    ) -> None:
        config = served_model.config
        self.arrangement = arrangement
        self._served_model = served_model
        self._config = config
        self._lane = lane
        self._descriptors = [ring.fd, *(bell.fileno() for bell in bells)]
        self._environment = {"CLUSTER_SERVING_LOG_LEVEL": config.log_level}
        self._spec = LaneSpec(
            job=config.job_name,
            node=lane.node,
            redis=config.redis_settings(),
            geometry=ring.geometry,
            ring_fd=ring.fd,
            reader_bell=bells[0].fileno(),
            writer_bell=bells[1].fileno(),
            worker_bells=tuple(bell.fileno() for bell in bells[2:]),
            first_worker=first_worker,
        )

    @property
    def places(self) -> LanePlaces:
        """Cores of each process of the lane, and the NUMA domain of all processes."""
        return self.arrangement.lanes[self._lane.number]

    def name_of(self, kind: str) -> str:
        """Return the name of a reader or writer: `reader`, and in further lanes `reader-1`."""
        return f"{kind}-{self._lane.number}" if self._lane.number else kind

    def name_of_worker(self, index: int) -> str:
        """Return the name of a worker, such as `worker-0`."""
        return f"worker-{self._spec.first_worker + index}"

    def worker(self, index: int) -> Child:
        """Start a worker."""
        config = self._config
        threads = self.arrangement.threads
        spec = WorkerSpec(
            lane=self._spec,
            worker=index,
            model=self._served_model.model,
            options=config.load_options(threads),
            runtime=self._served_model.runtime,
            trials=self._served_model.trials,
            post_processing=config.post_processing,
            labels=config.labels,
            processing=config.processing,
            model_secrets=config.model_secrets(),
            record_secrets=config.record_secrets(),
            deterministic=config.deterministic,
            output_dtype=config.output_dtype,
            padding=config.padding,
            proof_directory=self._served_model.proof_directory,
            proof_conditions=self._served_model.proof_conditions,
        )
        placement = Placement(self.places.workers[index], threads, self.places.domain)
        return self._started("worker", self.name_of_worker(index), spec, placement, WORKER_ENVIRONMENT)

    def reader(self) -> Child:
        """Start a reader, after a worker has reported the inputs of the model."""
        config = self._config
        spec = ReaderSpec(
            lane=self._spec,
            consumer=self._lane.consumer,
            inputs=self._served_model.inputs,
            max_batch_delay_ms=config.max_batch_delay_ms,
            decoding=DecodeOptions(
                calls=self._served_model.batching.mode == "none",
                sparse_layout=config.sparse_layout,
                raw=self._served_model.raw,
                encrypted=config.record_encrypted,
                may_order=config.bind_inputs == "order",
                padded=tuple(config.padding),
                legacy=config.legacy_streams,
            ),
            lease_s=config.lease_s,
            max_deliveries=config.max_deliveries,
        )
        return self._other("reader", spec)

    def writer(self) -> Child:
        """Start a writer, after the fingerprint of the model has been computed."""
        spec = WriterSpec(
            lane=self._spec,
            result_ttl_ms=round(self._config.result_time_to_live_s * 1000),
            legacy_filter_text=self._config.legacy_filter_text,
            model_hash=self._served_model.model_hash,
            max_dead_letters=self._config.max_dead_letters,
            max_dead_letter_bytes=self._config.max_dead_letter_bytes,
            spans=self._config.open_telemetry,
            legacy=self._config.legacy_streams,
        )
        return self._other("writer", spec)

    def _other(self, kind: str, spec: ReaderSpec | WriterSpec) -> Child:
        placement = Placement(self.places.others, domain=self.places.domain)
        return self._started(kind, self.name_of(kind), spec, placement, {})

    def _started(
        self,
        kind: str,
        name: str,
        spec: ReaderSpec | WorkerSpec | WriterSpec,
        placement: Placement,
        environment: Mapping[str, str],
    ) -> Child:
        environment = {**self._environment, **environment}
        return Child(kind, name, spec, placement, self._descriptors, StandardError(name), environment)
