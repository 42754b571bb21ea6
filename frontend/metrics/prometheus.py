"""The metrics of a frontend and of the nodes on its Redis as text for Prometheus, or as OpenMetrics."""

from collections.abc import Callable, Iterable, Sequence

from prometheus_client import exposition
from prometheus_client.metrics_core import Metric
from prometheus_client.openmetrics import exposition as openmetrics

from cluster_serving.client.wire.heartbeat import Heartbeat
from cluster_serving.frontend.metrics.frontend_metrics import frontend_metrics
from cluster_serving.frontend.metrics.node_metrics import node_metrics
from cluster_serving.frontend.metrics.timers import Reading


class _Families:
    """Object with the method `collect`, as the exposition functions need."""

    def __init__(self, families: Iterable[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterable[Metric]:
        """Return all families."""
        return self._families


def prometheus_text(reading: Reading, nodes: Sequence[Heartbeat], *, is_openmetrics: bool) -> bytes:
    """Return everything known of this frontend and the nodes on its Redis.

    Args:
        reading: reading of the timers.
        nodes: live nodes.
        is_openmetrics: OpenMetrics 1.0 instead of Prometheus' own text 0.0.4.
    """
    # A node with the same job and name on another Redis would void the whole text.
    once = {(node.job, node.node): node for node in nodes}
    families = _Families([*frontend_metrics(reading), *node_metrics(list(once.values()))])
    render: Callable[[_Families], bytes] = openmetrics.generate_latest if is_openmetrics else exposition.generate_latest
    return render(families)
