"""Every other spelling of a frontend's key, and what became of the options of the original that are gone.

A frontend reads the `config.yaml` of the nodes: its own keys stand below `frontend:`, and those of Redis and the job, which both
need, may stand outside, in the spellings of any version. What else stands there is the nodes'.
"""

from typing import Final

from cluster_serving.client.servers.config.spellings import Spellings, fold

_TRUST_STORE: Final = "redisSecureTrustStorePath"
_TRUST_STORE_PASSWORD: Final = "redisSecureTrustStorePassword"  # noqa: S105 - the name of a key

_SHARED: Final = frozenset(
    {
        "drainTimeout",
        "jobName",
        "logLevel",
        "redisCertFile",
        "redisDb",
        "redisKeyFile",
        "redisPassword",
        "redisSecureEnabled",
        "redisTimeout",
        "redisUrl",
        "redisUsername",
        _TRUST_STORE,
        _TRUST_STORE_PASSWORD,
    }
)

# Nested key of the original's files -> flat key; the sections' other keys are the nodes'.
_NESTED: Final = {
    "model.name": "jobName",
    "data.src": "redisUrl",
    "redis.timeout": "redisTimeout",
    "secure.secure_enabled": "redisSecureEnabled",
    "secure.secure_trust_store_path": _TRUST_STORE,
    "secure.secure_struct_store_password": _TRUST_STORE_PASSWORD,
    "secure.secure_trust_store_password": _TRUST_STORE_PASSWORD,
    "model.*": "nodes",
    "data.*": "nodes",
    "redis.*": "nodes",
    "secure.*": "nodes",
}

# Folded spelling -> flat key.
_ALIASES: Final = {
    "redisinputqueue": "jobName",
    "redisstruststorepath": _TRUST_STORE,
    "redisstruststoretoken": _TRUST_STORE_PASSWORD,
    "redistruststorepath": _TRUST_STORE,
    "redistruststoretoken": _TRUST_STORE_PASSWORD,
    "redissecurestructstorepassword": _TRUST_STORE_PASSWORD,
    "secureenabled": "redisSecureEnabled",
    "securetruststorepath": _TRUST_STORE,
    "securestructstorepassword": _TRUST_STORE_PASSWORD,
    "securetruststorepassword": _TRUST_STORE_PASSWORD,
}

OUTPUT_QUEUE: Final = "redis-output-queue"
GONE: Final = {
    "parallelism": "any number of requests wait at the same time; workers says how many processes answer them",
    OUTPUT_QUEUE: "answers come back on a way of their own, wherever the nodes put the results of other clients",
}
"""Options of the original that are accepted and mean nothing any more, and why."""

_IGNORED: Final = {fold(name): why for name, why in GONE.items()} | {"nodes": ""}

PATHS: Final = frozenset(
    {
        "apiKeysFile",
        "httpsKeyPath",
        "httpsKeyStorePath",
        "redisCertFile",
        "redisKeyFile",
        "servableManagerConfPath",
        _TRUST_STORE,
    }
)
"""Files whose relative paths mean: relative to the place where they were written down."""

SPELLINGS: Final = Spellings(
    frozenset({"model", "data", "redis", "secure"}),
    _NESTED,
    _ALIASES,
    ignored=_IGNORED,
    own="frontend",
    shared=_SHARED,
)
