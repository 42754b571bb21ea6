"""Trial of the records that wait in a stream of the original: decoded as by a node, and left where they are."""

import os
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from cluster_serving.client import keys
from cluster_serving.client.servers.process.command import say
from cluster_serving.node.processing.options import DecodeOptions
from cluster_serving.node.reader.decoding import RecordDecoder

if TYPE_CHECKING:
    from cluster_serving.client.threads.link import Link
    from cluster_serving.node.config.config import Config
    from cluster_serving.node.config.migration import Migration

_AT_ONCE = 256
_MOST = 10_000
_MOST_REASONS = 10


class Trial(NamedTuple):
    """Decoded records of a stream.

    Attributes:
        tried: number of records.
        faults: number of unreadable records by reason.
        firsts: name of the first record of each reason.
    """

    tried: int
    faults: Counter[str]
    firsts: dict[str, str]


def try_streams(migration: "Migration", redis_url: str | None) -> bool:
    """Try the streams of a job, print the outcome, and return whether every record can be read.

    Args:
        migration: settings of the job.
        redis_url: host:port or URL of Redis. None: the address in the settings.

    Raises:
        ConfigError: the settings or the address are wrong.
        RedisUnavailable: Redis cannot be reached, or refuses to read the stream.
    """
    from cluster_serving.client.errors import ConnectionLost
    from cluster_serving.client.protocol.redis_refused import RedisRefused
    from cluster_serving.client.threads.link import Link
    from cluster_serving.node.config.loading import load_config
    from cluster_serving.node.job.redis_errors import RedisUnavailable

    flags = {f"--set {key}": value for key, value in migration.settings.items()}
    if redis_url is not None:
        flags["--set redisUrl"] = redis_url
    config = load_config(None, os.environ, flags).config
    settings = config.redis_settings()
    link = Link(settings)
    all_readable = True
    streams = [config.job_name, *(name for name in keys.LEGACY_STREAMS if name != config.job_name)]
    try:
        for stream in streams:
            length = link.call("XLEN", stream)
            if stream in keys.LEGACY_STREAMS and not length and stream != config.job_name:
                continue
            trial = _try(link, stream, _decoder(config))
            _tell(f"{stream} at {settings.describe()}", length, trial)
            all_readable &= not trial.faults
    except ConnectionLost as error:
        raise RedisUnavailable(
            f"{str(error).rstrip('.')}; check --redis-url and CLUSTER_SERVING_REDIS_PASSWORD"
        ) from error
    except RedisRefused as error:
        raise RedisUnavailable(f"Redis at {settings.describe()} refuses to read {streams}: {error}") from error
    finally:
        link.close()
    return all_readable


def _decoder(config: "Config") -> RecordDecoder:
    """Return a decoder that checks the form of records, and leaves their names and shapes to a node, which knows the model."""
    legacy = "nightly" if config.legacy_streams == "off" else config.legacy_streams
    options = DecodeOptions(
        raw=True, encrypted=config.record_encrypted, sparse_layout=config.sparse_layout, legacy=legacy
    )
    return RecordDecoder((), keys.reply_prefix(config.job_name).encode(), options)


def _try(link: "Link", stream: str, decoder: RecordDecoder) -> Trial:
    tried, faults, firsts = 0, Counter[str](), dict[str, str]()
    for entry_id, fields in _entries(link, stream):
        tried += 1
        record = decoder.decode(entry_id, fields, 0)
        if record.error is not None:
            _, reason = record.error
            faults[reason] += 1
            firsts.setdefault(reason, f"{record.uri.decode(errors='replace')}, entry {entry_id.decode()}")
    return Trial(tried, faults, firsts)


def _entries(link: "Link", stream: str) -> Iterator[tuple[bytes, list[bytes]]]:
    """Yield the oldest entries of a stream, which XRANGE leaves to the consumers of the stream."""
    begin: Any = "-"
    for _ in range(_MOST // _AT_ONCE + 1):
        page = link.call("XRANGE", stream, begin, "+", "COUNT", _AT_ONCE)
        yield from page
        if len(page) < _AT_ONCE:
            return
        begin = b"(" + page[-1][0]


def _tell(stream: str, length: int, trial: Trial) -> None:
    if not trial.tried:
        say(f"{stream} holds no record: none waits, or the name or the address is another.")
        return
    unreadable = trial.faults.total()
    which = f"the oldest {trial.tried:,} of {length:,}" if trial.tried < length else f"{trial.tried:,}"
    readable = (
        "all can be read" if not unreadable else f"{trial.tried - unreadable:,} can be read, {unreadable:,} cannot"
    )
    say(f"{stream}: {which} records, {readable}.")
    for reason, count in trial.faults.most_common(_MOST_REASONS):
        say(f"  {count:,} x {reason}")
        say(f"      first: {trial.firsts[reason]}")
    if len(trial.faults) > _MOST_REASONS:
        say(f"  and {len(trial.faults) - _MOST_REASONS} more reasons")
