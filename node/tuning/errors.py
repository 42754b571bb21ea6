"""Errors that end a tuning, or only the trial of a candidate."""

from cluster_serving.client.servers.process.exit_codes import Fault


class TuningError(Fault):
    """No candidate can be measured. The message names the cause, and the setting that mends the cause."""


class Refused(Exception):
    """Refusal of one candidate. The message names the reason. Other candidates can still be chosen."""
