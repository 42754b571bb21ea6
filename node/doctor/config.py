"""Checks of a job's configuration."""

import shlex
from collections.abc import Callable

from cluster_serving.client.servers.checks import Checks, Verdict
from cluster_serving.node.config.loading import Config
from cluster_serving.node.doctor.job_facts import ConfigFacts

CONFIG = Checks[ConfigFacts]("Config")

_READABLE = 0o044
_IDLE: tuple[tuple[tuple[str, ...], str, Callable[[Config, str], bool]], ...] = (
    (("modelMaxBytes",), "modelPath is no URL", lambda config, _: not config.model_is_remote),
    (("modelSecret", "modelSalt"), "modelEncrypted is false", lambda config, _: not config.model_encrypted),
    (("recordSecret", "recordSalt"), "recordEncrypted is false", lambda config, _: not config.record_encrypted),
    (("modelSignature",), "the model is no SavedModel", lambda _, backend: backend not in ("", "tensorflow")),
    (("redisSecureTrustStorePassword",), "a PEM file has no password", lambda _config, _: True),
    (
        ("redisSecureTrustStorePath", "redisCertFile", "redisKeyFile"),
        "Redis is reached without TLS",
        lambda config, _: not config.redis_settings().tls,
    ),
    (
        ("sentinelUsername", "sentinelPassword"),
        "redisUrl names no Sentinels",
        lambda config, _: config.redis_settings().sentinels is None,
    ),
    (
        ("redisMaxMemory",),
        "start runs no Redis at this address",
        lambda config, _: not config.redis_settings().is_local_default,
    ),
    (
        ("maxBatchDelayMs", "padding"),
        "batching is none",
        lambda config, _: config.batching == "none" or config.input_already_batched,
    ),
    (("legacyFilterText",), "postProcessing is not set", lambda config, _: not config.post_processing.strip()),
    (
        ("objective",),
        "tuning is off, and modelParallelism or threadPerModel is set",
        lambda config, _: (
            config.tuning == "off" and (config.model_parallelism is not None or config.thread_per_model is not None)
        ),
    ),
    (
        ("coreNumberPerMachine",),
        "modelParallelism and threadPerModel are set",
        lambda config, _: config.model_parallelism is not None and config.thread_per_model is not None,
    ),
)
"""Keys without effect, the reason, and the condition, given the settings and the backend."""


@CONFIG("CS-CONFIG-WRONG")
def wrong(facts: ConfigFacts) -> Verdict:
    """Judge whether the configuration can be read."""
    if not facts.error:
        return Verdict("ok", str(facts.path or "no config file"))
    return Verdict("fail", facts.error.partition("\n")[0], "mend the line", "cluster-serving config")


@CONFIG("CS-CONFIG-UNMET")
def unmet(facts: ConfigFacts) -> Verdict:
    """Judge whether this machine has what TensorBoard and OpenTelemetry need, if they are wanted."""
    if facts.loaded is None:
        return Verdict("skip", "the configuration cannot be read")
    if not facts.unmet:
        return Verdict("ok", "scalars and spans can be told, where they are wanted")
    return Verdict("fail", facts.unmet, "install the extra, or mend the setting", "cluster-serving config")


@CONFIG("CS-CONFIG-OLD")
def old_keys(facts: ConfigFacts) -> Verdict:
    """Judge whether keys of older versions are left that have no effect."""
    ignored = facts.loaded.ignored if facts.loaded else {}
    ignored = {key: why for key, why in ignored.items() if key.partition(".")[0] != "frontend"}
    if not ignored:
        return Verdict("ok", "no key of an older version without effect")
    return Verdict(
        "warn",
        "; ".join(f"{key} has no effect: {why}" for key, why in ignored.items()),
        "take the keys away",
        "cluster-serving config",
        len(ignored),
        {"keys": ignored},
    )


@CONFIG("CS-CONFIG-UNUSED")
def unused(facts: ConfigFacts) -> Verdict:
    """Judge whether settings have no effect beside the other settings."""
    if facts.loaded is None:
        return Verdict("skip", "the configuration cannot be read")
    config = facts.loaded.config
    differs = config.model_dump(by_alias=True, exclude_defaults=True)
    found = {
        key: why
        for keys, why, has_no_effect in _IDLE
        for key in keys
        if key in facts.loaded.found.settings and key in differs and has_no_effect(config, facts.backend)
    }
    if not found:
        return Verdict("ok", "every setting has an effect")
    return Verdict(
        "warn",
        "; ".join(f"{key} has no effect, because {why}" for key, why in found.items()),
        "take the settings away, or set the other keys too",
        "cluster-serving config",
        len(found),
        {"keys": found},
    )


@CONFIG("CS-CONFIG-SECRETS")
def secrets(facts: ConfigFacts) -> Verdict:
    """Judge whether other users can read secrets in the file."""
    if facts.loaded is None or facts.path is None:
        return Verdict("skip" if facts.error else "ok", "no config file")
    found = facts.loaded.found
    in_file = sorted(
        key for key in found.secrets if found.settings.get(key) and found.settings[key].source == facts.path.name
    )
    if not in_file or not facts.mode & _READABLE:
        return Verdict("ok", "no secret that other users can read")
    return Verdict(
        "warn",
        f"other users of this machine can read {', '.join(in_file)} in {facts.path}",
        "close the file, or give the secret as CLUSTER_SERVING_..._FILE",
        f"chmod 600 {shlex.quote(str(facts.path))}",
        len(in_file),
        {"keys": in_file, "mode": f"{facts.mode:o}"},
    )


@CONFIG("CS-CONFIG-CHANGED")
def changed(facts: ConfigFacts) -> Verdict:
    """Judge whether the running node has the file as it is now."""
    if not facts.started_ms or facts.changed_ms <= facts.started_ms:
        return Verdict("ok", "no change that the node has not read")
    return Verdict(
        "warn",
        f"{facts.path} was changed after the start of the node, which still has the earlier settings",
        "let the node read it",
        f"cluster-serving restart {facts.job}",
        1,
        {"changed_ms": facts.changed_ms, "started_ms": facts.started_ms},
    )


@CONFIG("CS-CONFIG-UNTUNED")
def untuned(facts: ConfigFacts) -> Verdict:
    """Judge whether the numbers of `auto` were measured for this model and CPU."""
    if not facts.untuned:
        return Verdict(
            "ok", "workers, threads and batch size are set or measured" if facts.backend else "no model to tune"
        )
    return Verdict(
        "warn",
        "workers, threads and batch size are a guess: no measurement of this model with this CPU is stored",
        "measure once; the result is used from then on",
        f"cluster-serving tune {facts.job}".rstrip(),
    )
