"""Faults of a Redis that cannot be used."""

from cluster_serving.client.servers.process.exit_codes import ExitCode, Fault


class RedisUnavailable(Fault):
    """Redis cannot be started, reached or used. The message names the fault and the remedy."""

    exit_code = ExitCode.REDIS


class RedisAway(RedisUnavailable):
    """Redis does not answer, or is still loading. Trying again may help."""
