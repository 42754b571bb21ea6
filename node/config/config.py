"""The settings of a node, and the values that its parts derive from them."""

from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import SecretStr

from cluster_serving.client.servers.config.spellings import ConfigError
from cluster_serving.client.servers.config.values import is_remote
from cluster_serving.node.config.settings import MAX_WORKERS, PLACEHOLDER_PATH, Settings
from cluster_serving.node.models.base import LoadOptions

if TYPE_CHECKING:
    from cluster_serving.client.redis_settings import RedisSettings
    from cluster_serving.node.models.runtime import Runtime
    from cluster_serving.node.models.secrets import Secrets
    from cluster_serving.node.processing.options import ImageOptions


class Config(Settings):
    """Settings of a node, as its parts take them."""

    def redis_settings(self, timeout_s: float | None = None) -> "RedisSettings":
        """Return the settings of the connection to Redis. `timeout_s` replaces `redisTimeout`.

        Raises:
            ValueError: `redisUrl` is not valid. A config from `load_config` always has a valid URL.
        """
        from cluster_serving.client.redis_settings import RedisSettings

        return RedisSettings.parse(
            self.redis_url.strip(),
            username=self.redis_username,
            password=self.redis_password.get_secret_value() if self.redis_password else None,
            db=self.redis_db,
            tls=self.redis_secure_enabled,
            ca_file=self.redis_secure_trust_store_path or None,
            cert_file=self.redis_cert_file,
            key_file=self.redis_key_file,
            sentinel_username=self.sentinel_username,
            sentinel_password=self.sentinel_password.get_secret_value() if self.sentinel_password else None,
            timeout_s=self.redis_timeout / 1000 if timeout_s is None else timeout_s,
        )

    @property
    def runtime(self) -> "Runtime":
        """Engine and precision to run the model with, as far as set."""
        from cluster_serving.node.models.runtime import Runtime

        return Runtime(self.engine, self.precision)

    def load_options(self, threads: int) -> LoadOptions:
        """Return the options for loading the model in a worker with `threads` threads."""
        given = (self.model_inputs, self.model_outputs, self.model_signature, self.allow_pickle)
        return LoadOptions(threads, "f32", *given, "batches" if self.input_already_batched else self.batching)

    def image_options(self) -> "ImageOptions":
        """Return the options for turning images into rows."""
        from cluster_serving.node.processing.options import ImageOptions

        return ImageOptions(
            resize=self.image_resize,
            channels=self.image_channels or 0,
            order=self.image_channel_order,
            layout=self.image_layout,
            decoding=self.image_decoding,
            mean=self.image_mean,
            scale=self.image_scale,
        )

    def model_secrets(self) -> "Secrets | None":
        """Return the secret and salt of the model, or `None` for a model that is not encrypted."""
        return _secrets(self.model_secret, self.model_salt) if self.model_encrypted else None

    def record_secrets(self) -> "Secrets | None":
        """Return the secret and salt for images of records, or `None` for images that are not encrypted."""
        return _secrets(self.record_secret, self.record_salt) if self.record_encrypted else None

    @property
    def model_is_remote(self) -> bool:
        """True if `modelPath` is a URL, so that the model has to be fetched."""
        return is_remote(self.model_path)

    @property
    def beside_model(self) -> tuple[Path, ...]:
        """Files that may lie in the model's directory and are no models."""
        return tuple(
            Path(text)
            for text in (self.processing.rpartition(":")[0], self.accuracy_metric.rpartition(":")[0], self.labels)
            if text
        )

    def resolved_parallelism(self, backend: str, budget: int, copies: int = MAX_WORKERS) -> tuple[int, int]:
        """Return the number of workers, and the number of threads of each worker.

        Numbers that are set win, and `coreNumberPerMachine` comes next. Open numbers are chosen so that workers x threads are
        at most `budget`. If nothing is set, there are as many workers as possible, at most `copies`.
        """
        processes, threads, number = self.model_parallelism, self.thread_per_model, self.core_number_per_machine
        if number > 0:
            by_threads = backend == "openvino"
            workers = 1 if by_threads else min(number, MAX_WORKERS)
            return processes or workers, threads or (number if by_threads else 1)
        if processes is None:
            workers = max(1, min(budget // (threads or 1), copies))
            return workers, threads or max(1, budget // workers)
        return processes, threads or max(1, budget // processes)

    def check_model_path(self) -> None:
        """Check that `modelPath` is set. `models/detect.py` checks the model itself.

        Raises:
            ConfigError: `modelPath` is not set, or still has the value of the template.
        """
        if self.model_path in {"", PLACEHOLDER_PATH}:
            why = "is not set" if not self.model_path else f"is still {PLACEHOLDER_PATH}"
            raise ConfigError(
                f"modelPath {why}: set it in config.yaml, or with --model-path, to the directory of your model"
            )


def _secrets(secret: SecretStr | None, salt: SecretStr | None) -> "Secrets":
    from cluster_serving.node.models.secrets import Secrets

    return Secrets(secret.get_secret_value() if secret else "", salt.get_secret_value() if salt else "")
