"""Accepted spellings of a frontend's keys, and the options of the original that have no effect now.

A frontend reads the `config.yaml` of the nodes. Its own keys stand below `frontend:`. The keys of Redis and the job, needed by
nodes and frontend, may stand outside, in the spellings of any version. All other keys outside are the nodes'.
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
        "sentinelPassword",
        "sentinelUsername",
        _TRUST_STORE,
        _TRUST_STORE_PASSWORD,
    }
)

# Nested key of the original's files -> flat key. All other keys of the sections are the nodes'.
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
    "parallelism": "any number of requests wait at the same time; workers sets the number of processes that answer",
    OUTPUT_QUEUE: "answers come back on a reply stream of the frontend, wherever the results of other clients go",
}
"""Options of the original that are accepted and have no effect, with the reason."""

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
"""Keys of files. A relative path starts at the place where the setting is written."""

SPELLINGS: Final = Spellings(
    frozenset({"model", "data", "redis", "secure"}),
    _NESTED,
    _ALIASES,
    ignored=_IGNORED,
    own="frontend",
    shared=_SHARED,
)
