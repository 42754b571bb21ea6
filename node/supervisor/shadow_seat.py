"""Shadow of one generation: at most one process, which no record waits for. It follows the lanes, and goes before them."""

from collections.abc import Sequence

import structlog

from cluster_serving.client.wire.heartbeat import Shadow
from cluster_serving.node.config.arrangement import Arrangement
from cluster_serving.node.engines.trials import REFERENCE
from cluster_serving.node.ring.ring import Ring
from cluster_serving.node.shadow.spec import ShadowSpec
from cluster_serving.node.supervisor.child import Child, Placement
from cluster_serving.node.supervisor.launcher import WORKER_ENVIRONMENT
from cluster_serving.node.supervisor.seat import Seat
from cluster_serving.node.supervisor.served_model import ServedModel
from cluster_serving.node.supervisor.stderr import StandardError

log = structlog.get_logger(__name__)

NAME = "shadow"
_MOST_DEATHS = 5


class ShadowSeat(Seat):
    """Seat of the shadow.

    Args:
        served_model: model and configuration that the lanes serve.
        arrangement: number of threads, and rows of a batch.
        rings: rings of all lanes.
    """

    def __init__(self, served_model: ServedModel, arrangement: Arrangement, rings: Sequence[Ring]) -> None:
        super().__init__(NAME, self._started)
        self._served_model = served_model
        self._arrangement = arrangement
        self._rings = rings
        self._deaths = 0
        self._nothing = ""  # why nothing is shadowed, although it is wanted

    @property
    def told(self) -> Shadow | None:
        """Comparison of live records with float32, since the start of the generation. None: none is configured."""
        share, ring = self._served_model.config.shadow, self._rings[0]
        return Shadow(share, ring.shadowed, ring.shadow_agreeing, self._nothing) if share else None

    def begin(self) -> None:
        """Start the shadow for the first time, if it is wanted and has something to compare."""
        served = self._served_model
        if not served.config.shadow:
            return
        if served.runtime == REFERENCE:
            self._nothing = "the model is served in its native float32"
        elif served.batching.mode == "none":
            self._nothing = f"each record is a call of the model by itself (batching {served.batching.described()})"
        if self._nothing:
            log.info("nothing is shadowed", why=self._nothing)
        else:
            self.fill()

    def fill(self) -> None:
        """Start a shadow."""
        try:
            self.start()
        except OSError as error:
            log.error("cannot start a process", child=self.name, reason=str(error))

    def hear(self) -> None:
        """Read the message of the shadow on its ready pipe."""
        if self.child is not None:
            self.child.hear()
            if self.child.ready is not None:
                log.info("ready", child=self.name, pid=self.child.pid, share=self._served_model.config.shadow)

    def bury(self, reason: str) -> None:
        """Clean up after the shadow has ended. A successor follows, unless the model was at fault, or it has ended too often."""
        assert self.child is not None  # noqa: S101 - it has just been reaped
        self.child.hear()
        self.child.close()
        if self.wanted:
            self._deaths += 1
            failure = self.child.failure
            reason = failure[0] if failure else reason
            log.error("died", child=self.name, pid=self.child.pid, reason=reason)
            self.wanted = failure is None and self._deaths < _MOST_DEATHS
            self.wait()
            if not self.wanted:
                self._nothing = f"it has died {'once' if self._deaths == 1 else f'{self._deaths} times'}: {reason}"
                log.warning("nothing is shadowed any more, until the job is restarted", deaths=self._deaths)
        self.child = None

    def look_after(self) -> None:
        """Start a successor that is due."""
        if self.is_due:
            log.info("starting a successor", child=self.name)
            self.fill()

    def _started(self) -> Child:
        served, config = self._served_model, self._served_model.config
        threads = self._arrangement.threads
        fds = tuple(ring.fd for ring in self._rings)
        spec = ShadowSpec(
            job=config.job_name,
            ring_fds=fds,
            share=config.shadow,
            inputs=served.inputs,
            raw=served.raw,
            model=served.model,
            model_hash=served.model_hash,
            options=config.load_options(threads),
            runtime=served.runtime,
            batch=self._arrangement.choice.batch,
            trials=served.trials,
            processing=config.processing,
            proof_directory=served.proof_directory,
            proof_conditions=served.proof_conditions,
        )
        environment = {"CLUSTER_SERVING_LOG_LEVEL": config.log_level} | WORKER_ENVIRONMENT
        return Child(NAME, NAME, spec, Placement(threads=threads), fds, StandardError(NAME), environment)
