"""Accepted spellings of the config keys, and the handling of removed keys.

A file of any version of the original is accepted: nested sections (0.7 to 0.9), flat keys (0.10 and later), or both at once.
Flat keys are compared without case, `_` and `-`: `modelPath`, `MODEL_PATH` and `modelpath` are one key.
"""

from typing import Final

from cluster_serving.client.servers.config.spellings import Spellings

_SECTIONS: Final = frozenset({"model", "data", "params", "redis", "secure", "spark", "flink", "frontend", "autoscale"})

# Nested key -> flat key.
_NESTED: Final[dict[str, str]] = {
    "model.path": "modelPath",
    "model.name": "jobName",
    "model.inputs": "modelInputs",
    "model.outputs": "modelOutputs",
    "data.src": "redisUrl",
    "data.filter": "postProcessing",
    "data.image_shape": "imageResize",
    "data.batched": "inputAlreadyBatched",
    "params.batch_size": "batchSize",
    "params.core_number": "coreNumberPerMachine",
    "params.model_number": "modelParallelism",
    "params.top_n": "postProcessing",
    "redis.maxmem": "redisMaxMemory",
    "redis.timeout": "redisTimeout",
    "secure.secure_enabled": "redisSecureEnabled",
    "secure.secure_trust_store_path": "redisSecureTrustStorePath",
    "secure.secure_struct_store_password": "redisSecureTrustStorePassword",
    "secure.secure_trust_store_password": "redisSecureTrustStorePassword",
    "secure.model_encrypted": "modelEncrypted",
    "secure.record_encrypted": "recordEncrypted",
    "spark.*": "spark",
    "flink.*": "flink",
    "frontend.*": "frontend",
    "autoscale.*": "autoscale",
}

# Flat spelling, folded -> flat key.
_ALIASES: Final[dict[str, str]] = {
    "redissecurestructstorepassword": "redisSecureTrustStorePassword",
    "secureenabled": "redisSecureEnabled",
    "securetruststorepath": "redisSecureTrustStorePath",
    "securestructstorepassword": "redisSecureTrustStorePassword",
    "securetruststorepassword": "redisSecureTrustStorePassword",
}

# Flags with a name that differs from the key, folded -> flat key.
_FLAGS: Final[dict[str, str]] = {"parallelism": "modelParallelism", "omp": "threadPerModel"}

_JVM = "there is no JVM back end any more"
_CLIENT = "every record describes its own content"
_PLACED = "processes are placed on cores in every mode"

# Keys without a meaning today, nested or folded flat -> reason.
_IGNORED: Final[dict[str, str]] = {
    "spark": _JVM,
    "flink": _JVM,
    "frontend": "it is for the frontend, which reads it from the same file",
    "autoscale": "it is for the autoscaler, which reads it from the same file",
    "flinkresturl": _JVM,
    "performancemode": _PLACED,
    "params.performance_mode": _PLACED,
    "enginetype": _JVM,
    "params.engine_type": _JVM,
    "model.mode": _JVM,
    "data.data_type": _CLIENT,
    "data.tensor_shape": _CLIENT,
    "data.shape": _CLIENT,
    "data.type": _CLIENT,
    "data.resize": "batches of every size are allowed",
    "kafkaurl": "the queue is Redis",
    "dynamicbatching": "records share batches without it: see batching, batchSize and maxBatchDelayMs",
    "sequencebatching": "a node keeps no state: let the model return its state, and send the state with the next record",
}

# In the original, `on` asked for the speed of the whole machine. Today `on` asks for a measurement at the start.
_MEASURED: Final = {"on": ("tuning", "start")}
# In Triton, a model without batches has the size 0.
_MOST_ROWS: Final = {"0": ("batching", "none"), "1": ("batching", "none"), "*": ("batchSize", "*")}
_SWITCHES: Final = {
    "performancemode": _MEASURED,
    "params.performance_mode": _MEASURED,
    "maxbatchsize": _MOST_ROWS,
}

# Keys that are refused unless the value asks for nothing, folded flat -> (values that ask for nothing, reason of the refusal).
_REFUSED: Final[dict[str, tuple[frozenset[str], str]]] = {
    "queueused": (
        frozenset({"redis", ""}),
        "only Redis is supported as the queue: take the line away, and let programs write to Redis",
    ),
}

# Keys of files. A relative path is relative to the place where the setting was written down.
PATHS: Final = frozenset(
    {
        "modelPath",
        "modelCache",
        "accuracyMetric",
        "calibrationData",
        "labels",
        "processing",
        "tensorboardDir",
        "redisSecureTrustStorePath",
        "redisCertFile",
        "redisKeyFile",
    }
)

# Keys in `PATHS` with values that may also be URLs.
ADDRESSES: Final = frozenset({"modelPath"})

SPELLINGS: Final = Spellings(_SECTIONS, _NESTED, _ALIASES, _FLAGS, _IGNORED, _SWITCHES, _REFUSED)
