"""Read the settings of a frontend: flag, then environment, then file, then default.

`load_frontend_config` is the only reader. `settings.py` has the keys, `spellings.py` has the spellings of older versions, and
`client/servers/config/` has the steps of the reading.
"""

from collections.abc import Mapping
from pathlib import Path

from cluster_serving.client.redis_settings import RedisSettings
from cluster_serving.client.servers.config.loading import Loaded, load
from cluster_serving.client.servers.config.sources import ENVIRON_PREFIX, Found, Setting
from cluster_serving.client.servers.config.spellings import ConfigError
from cluster_serving.client.servers.config.values import check_pem, check_port, mask_url
from cluster_serving.frontend.config.api_keys import ApiKeys
from cluster_serving.frontend.config.servables import read_servables, warn_of_moved
from cluster_serving.frontend.config.settings import FrontendConfig
from cluster_serving.frontend.config.spellings import OUTPUT_QUEUE, PATHS, SPELLINGS
from cluster_serving.frontend.config.tls import server_context

__all__ = ["ConfigError", "LoadedFrontendConfig", "check_files", "effective", "load_frontend_config"]

_NEEDS_SENTINELS = "laterDurability is majority, so {}"
_SERVABLES = "servables-conf.yaml"

LoadedFrontendConfig = Loaded[FrontendConfig]


def load_frontend_config(
    path: Path | None, environ: Mapping[str, str], flags: Mapping[str, object]
) -> LoadedFrontendConfig:
    """Read, merge and check every setting.

    Args:
        path: config file of any version, or None.
        environ: variables such as `CLUSTER_SERVING_PORT`. `CLUSTER_SERVING_REDIS_PASSWORD_FILE` names a file with the value.
        flags: value by flag: `--port`, `--tokensPerSecond`, or a bare key. None: the flag is not given.

    Raises:
        ConfigError: the first fault found, in one sentence that starts with the place of the fault.
    """
    # Kubernetes sets such variables for a service named `cluster-serving` or `cluster-serving-redis`.
    foreign = {
        name
        for name, value in environ.items()
        if name.startswith(ENVIRON_PREFIX) and name.endswith("PORT") and value.startswith(("tcp://", "udp://"))
    }
    own = {name: value for name, value in environ.items() if name not in foreign}
    loaded = load(FrontendConfig, SPELLINGS, path, own, flags, PATHS, _settle)
    loaded.ignored.update(dict.fromkeys(sorted(foreign), "Kubernetes sets it for a service of this name"))
    _check_redis(loaded.config, loaded.found)
    if loaded.config.later_durability != "none" and loaded.config.redis_settings().sentinels is None:
        raise ConfigError(
            _NEEDS_SENTINELS.format("redisUrl must name Sentinels: redis+sentinel://host:26379,.../service")
        )
    if loaded.config.https_enabled and not loaded.config.https_key_store_path:
        raise ConfigError("httpsEnabled is true, so httpsKeyStorePath must be set: a PKCS12 or PEM file")
    if loaded.config.https_enabled and loaded.config.port == loaded.config.secure_port != 0:
        raise ConfigError(f"port and securePort are both {loaded.config.port}; HTTP and HTTPS need a port each")
    flag = f"--{OUTPUT_QUEUE}"
    if flags.get(flag) in {f"cluster-serving_{loaded.config.job_name}:", "result:"}:
        loaded.ignored.pop(flag)  # the usual value
    return loaded


def check_files(config: FrontendConfig) -> None:
    """Check the files that the settings name, before any process that needs the files is started.

    Log a warning for API keys that everybody can read, and for models that need a node now.

    Raises:
        ConfigError: a file cannot be used.
    """
    if config.https_enabled:
        token = config.https_key_store_token
        try:
            server_context(
                config.https_key_store_path, token.get_secret_value() if token else None, config.https_key_path
            )
        except ValueError as error:
            raise ConfigError(f"httpsKeyStorePath: {error}") from None
    if config.api_keys_file:
        ApiKeys(config.api_keys_file)
    if config.servable_manager_conf_path:
        servables = read_servables(config.servable_manager_conf_path, config.redis_settings())
        warn_of_moved(servables)
        for servable in servables:
            if config.later_durability != "none" and servable.redis.sentinels is None:
                raise ConfigError(
                    _NEEDS_SENTINELS.format(
                        f"the model {servable.name} of {config.servable_manager_conf_path} must be on the Redis of redisUrl"
                    )
                )


def effective(config: FrontendConfig) -> dict[str, object]:
    """Return the value of each key for people to read: secrets are masked."""
    dumped: dict[str, object] = config.model_dump(by_alias=True, mode="json")
    values = {key: ", ".join(map(str, value)) if isinstance(value, list) else value for key, value in dumped.items()}
    return values | {"redisUrl": mask_url(config.redis_url)}


def _settle(found: Found) -> None:
    """Drop host and port of Redis where a stronger source gives both in `redisUrl`. Find the original's file of models."""
    here = Path(_SERVABLES)
    if "servableManagerConfPath" not in found.settings and here.exists():
        found.take(Setting("servableManagerConfPath", str(here), "found here", _SERVABLES))
    url = found.settings.get("redisUrl")
    for key in ("redisHost", "redisPort"):
        part = found.settings.get(key)
        if url and part and _rank(url) > _rank(part):
            del found.settings[key]


def _rank(setting: Setting) -> int:
    return 2 if setting.source.startswith("--") else int(setting.source.startswith(ENVIRON_PREFIX))


def _check_redis(config: FrontendConfig, found: Found) -> None:
    places = {key: f"{setting.where}: " for key, setting in found.settings.items()}
    try:
        check_port(config.redis_url.strip())
        RedisSettings.parse(config.redis_url.strip())
    except ValueError as error:
        raise ConfigError(f"{places.get('redisUrl', '')}redisUrl is {mask_url(config.redis_url)}: {error}") from error
    try:
        settings = config.redis_settings()
    except ValueError as error:
        raise ConfigError(f"{places['redisSecureTrustStorePath']}redisSecureTrustStorePath {error}") from error
    for key, path in (("redisCertFile", settings.cert_file), ("redisKeyFile", settings.key_file)):
        if path and settings.tls:
            try:
                check_pem(path)
            except ValueError as error:
                raise ConfigError(f"{places[key]}{key} {path} {error}") from error
