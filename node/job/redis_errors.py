"""The faults of a Redis that cannot be used."""

from cluster_serving.client.servers.process.exit_codes import ExitCode, Fault


class RedisUnavailable(Fault):
    """Redis cannot be started, reached or used; the message says which and how to mend it."""

    exit_code = ExitCode.REDIS


class RedisAway(RedisUnavailable):
    """Redis does not answer, or is still loading: trying again may help."""
