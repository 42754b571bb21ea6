"""What ends a tuning, and what only a trial."""

from cluster_serving.client.servers.process.exit_codes import Fault


class TuningError(Fault):
    """Nothing can be measured; the message says why, and which setting mends it."""


class Refused(Exception):
    """This candidate cannot be chosen, and this is why; others can."""
