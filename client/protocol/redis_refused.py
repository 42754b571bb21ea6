"""The error that is redis-py's too, in a file of its own: importing redis-py takes a tenth of a second, and no worker needs it."""

import redis

from cluster_serving.client.errors import ClusterServingError


class RedisRefused(ClusterServingError, redis.ResponseError):
    """Redis answered a command with an error, and waiting does not help. The message is the text of Redis."""

    http_status = 503
