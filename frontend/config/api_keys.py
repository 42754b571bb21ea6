"""API keys listed in a file. A change of the file takes effect without a restart of the frontend."""

import hmac
import stat
from hashlib import sha256
from pathlib import Path

import structlog

from cluster_serving.client.servers.config.spellings import ConfigError

log = structlog.get_logger(__name__)

_LOOK_S = 1.0


class ApiKeys:
    """API keys of a file with one key a line, `key` or `name:key`.

    Empty lines and lines that begin with `#` are skipped. The file is checked for changes once a second at most. While the file
    cannot be read, the keys of the last successful read stay valid.

    Args:
        path: path of the file.

    Raises:
        ConfigError: the file cannot be read, holds no key, or can be written by everybody on this machine.
    """

    def __init__(self, path: str) -> None:
        self._path = Path(path)
        self._version: tuple[int, int, int] | None = None
        self._looked_s = float("-inf")
        self._digests = self._read()

    def allows(self, key: str, now_s: float) -> bool:
        """Return whether the file lists a key. A wrong key takes as long as a right one.

        Args:
            key: API key of a request.
            now_s: time of a monotonic clock, in seconds.
        """
        if now_s - self._looked_s >= _LOOK_S:
            self._looked_s = now_s
            self._look()
        digest = _digest(key)
        # Compare with every key, each in constant time. The duration says nothing about keys that begin alike.
        return sum([hmac.compare_digest(digest, known) for known in self._digests]) > 0

    def _look(self) -> None:
        try:
            if self._stat() == self._version:
                return
            self._digests = self._read()
        except (ConfigError, OSError) as error:
            if self._version is not None:  # logged once, until the file can be read again
                log.warning("the API keys of the last read stay valid", reason=str(error))
            self._version = None
        else:
            log.info("API keys read again", path=str(self._path), keys=len(self._digests))

    def _stat(self) -> tuple[int, int, int]:
        found = self._path.stat()
        return found.st_mtime_ns, found.st_size, found.st_ino

    def _read(self) -> list[bytes]:
        try:
            version, mode = self._stat(), self._path.stat().st_mode
            lines = self._path.read_text(encoding="utf-8-sig").splitlines()
        except OSError as error:
            raise ConfigError(f"apiKeysFile {self._path} cannot be read: {error.strerror}") from error
        except UnicodeDecodeError as error:
            raise ConfigError(f"apiKeysFile {self._path} is not text") from error
        if mode & stat.S_IWOTH:
            raise ConfigError(f"apiKeysFile {self._path} can be written by everybody on this machine: chmod o-w it")
        digests: list[bytes] = []
        for line in lines:
            before, colon, after = line.strip().partition(":")
            key = "" if before.startswith("#") else (after if colon else before).strip()
            if key:
                digests.append(_digest(key))
        if not digests:
            raise ConfigError(f"apiKeysFile {self._path} holds no key, so every call would be refused")
        # A warning and no error: Docker and Kubernetes mount secrets that everybody in the container can read.
        if mode & stat.S_IROTH:
            log.warning("the API keys can be read by everybody on this machine", path=str(self._path), mend="chmod o-r")
        self._version = version
        return digests


def _digest(key: str) -> bytes:
    return sha256(key.encode(errors="surrogateescape")).digest()
