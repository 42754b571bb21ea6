"""Durations and sizes in the notation of stack files and redis.conf."""

import re

_SECONDS = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9}
_BYTES = {"": 1, "b": 1, "k": 1000, "kb": 1024, "m": 1000**2, "mb": 1024**2, "g": 1000**3, "gb": 1024**3}


def seconds(text: str) -> float:
    """Return the seconds of a duration, for example 1m30s (format of Go's time.ParseDuration)."""
    return sum(float(number) * _SECONDS[unit] for number, unit in re.findall(r"([\d.]+)(h|ms|m|us|µs|ns|s)", text))


def redis_bytes(text: str) -> int:
    """Return the bytes of a redis.conf size, for example 1gb (k is 1000, kb is 1024), or 0 for an invalid size."""
    found = re.fullmatch(r"(\d+)([kmg]?b?)", text.strip().lower())
    return int(found[1]) * _BYTES[found[2]] if found else 0


def docker_bytes(text: str) -> int:
    """Return the bytes of a limit: a plain number from `docker stack config`, or 4g, 512m, 1gb in powers of 1024."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([kmg]?)(?:i?b)?", text.strip().lower())
    return int(float(found[1]) * 1024 ** " kmg".index(found[2] or " ")) if found else 0
