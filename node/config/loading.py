"""Reader of a node's settings: flag, then environment, then file, then default.

`load_config` is the only reader. The settings are in `settings.py`, the spellings of older versions in `spellings.py`, and the
reading itself in `client/servers/config/`.
"""

from collections.abc import Mapping
from pathlib import Path

from cluster_serving.client.servers.config.loading import Loaded, load
from cluster_serving.client.servers.config.spellings import ConfigError
from cluster_serving.client.servers.config.values import (
    check_pem,
    check_port,
    has_host,
    is_remote,
    mask_address,
    mask_url,
)
from cluster_serving.node.config.config import Config
from cluster_serving.node.config.settings import PLACEHOLDER_PATH
from cluster_serving.node.config.spellings import ADDRESSES, PATHS, SPELLINGS

__all__ = ["PLACEHOLDER_PATH", "Config", "ConfigError", "LoadedConfig", "load_config"]


LoadedConfig = Loaded[Config]


def load_config(path: Path | None, environ: Mapping[str, str], flags: Mapping[str, object]) -> LoadedConfig:
    """Read, merge and check every setting.

    Args:
        path: a config file of any version, or None.
        environ: `CLUSTER_SERVING_MODEL_PATH` and so on. `CLUSTER_SERVING_REDIS_PASSWORD_FILE` names a file with the value.
        flags: flag to value: `--model-path`, `--parallelism`, `--set jobName`, or a bare key. None: not given.

    Raises:
        ConfigError: a setting is wrong. The message describes the first fault in a sentence that starts with the place.
    """
    loaded = load(Config, SPELLINGS, path, environ, flags, PATHS, addresses=ADDRESSES)
    config = loaded.config
    places = {key: f"{setting.where}: " for key, setting in loaded.found.settings.items()}
    try:
        check_port(config.redis_url.strip())
        config.redis_settings()
    except ValueError as error:
        detail = f"{places.get('redisUrl', '')}redisUrl is {mask_url(config.redis_url)}: {error}"
        raise ConfigError(f"Your redis host and port are not valid, please check. {detail}") from error
    for key, pem in (
        ("redisSecureTrustStorePath", config.redis_secure_trust_store_path),
        ("redisCertFile", config.redis_cert_file),
        ("redisKeyFile", config.redis_key_file),
    ):
        if pem and config.redis_settings().tls:
            try:
                check_pem(pem)
            except ValueError as error:
                raise ConfigError(f"{places[key]}{key} {pem} {error}") from error
    _check_together(config)
    return loaded


def effective(loaded: LoadedConfig) -> dict[str, object]:
    """Return key to value for people to read: secrets are masked."""
    dumped: dict[str, object] = loaded.config.model_dump(by_alias=True, mode="json")
    values = {key: ", ".join(map(str, value)) if isinstance(value, list) else value for key, value in dumped.items()}
    if loaded.config.image_resize:
        pair = loaded.config.image_resize
        values["imageResize"] = ",".join(
            str(n) for n in (pair if loaded.config.image_resize_order == "hw" else pair[::-1])
        )
    shown = {"redisUrl": mask_url(loaded.config.redis_url), "modelPath": mask_address(loaded.config.model_path)}
    return values | shown


def _check_together(config: Config) -> None:
    """Check settings that depend on each other."""
    if config.record_encrypted and not (config.record_secret and config.record_salt):
        raise ConfigError(
            "recordEncrypted is true, so recordSecret and recordSalt must be set (in the original they were always the words "
            "secret and salt)"
        )
    if bool(config.model_secret) != bool(config.model_salt):
        raise ConfigError("modelSecret and modelSalt belong together: set both, or neither to take both from Redis")
    if is_remote(config.model_path) and not has_host(config.model_path):
        raise ConfigError(
            "modelPath is a URL without a valid host: write https://host/model.tar.gz or s3://bucket/model/; in a user or "
            "password, / is %2F, @ is %40 and so on"
        )
    if config.model_checksum and not config.model_is_remote:
        raise ConfigError("modelChecksum is for a model from a URL, and modelPath is no URL: take modelChecksum away")
    if config.input_already_batched and config.batching == "rows":
        raise ConfigError(
            "inputAlreadyBatched is true, which means batching: none, and batching is rows: take one of them away"
        )
    if config.tensorboard_dir and not config.log_interval_s:
        raise ConfigError(
            "tensorboardDir is set, and logInterval is 0, so no point would be written: set logInterval to the seconds between two "
            "points"
        )
    if config.precision == "int8" and not config.calibration_data:
        raise ConfigError(
            "precision is int8, which is calibrated and proven on records of yours: set calibrationData to an .npz or .npy file "
            "or a folder of images"
        )
    if config.precision == "int8" and config.model_encrypted:
        raise ConfigError(
            "precision is int8, which writes the model to the disk, and modelEncrypted is true: take one of them away"
        )
    if config.shadow and (config.record_encrypted or config.model_encrypted):
        encrypted = "recordEncrypted" if config.record_encrypted else "modelEncrypted"
        raise ConfigError(
            f"shadow is set, and {encrypted} is true: what is encrypted is opened by workers alone; take one of them away"
        )
    if config.padding and config.deterministic:
        raise ConfigError(
            "padding and deterministic exclude each other, because the last bits of a result change with the padding: take one "
            "of them away"
        )
    if config.legacy_streams == "0.7" and not config.post_processing.strip().startswith("topN"):
        raise ConfigError(
            "legacyStreams is 0.7, whose clients read the classes that topN finds: set postProcessing to topN(1) as well"
        )
    if config.labels and not config.post_processing.strip().startswith("topN"):
        raise ConfigError("labels has names for the classes that topN finds: set postProcessing to topN(n) as well")
