"""Goal of tuning: the most records per second, with or without a limit on the latency of the answers."""

import math
import re
from collections.abc import Mapping
from typing import NamedTuple

import msgspec

THROUGHPUT = "throughput"

_LATENCY = re.compile(r"latency\s*[:=]?\s*(.+)")
_WRONG = "must be throughput, or latency: and the milliseconds that 99 of 100 answers may take"


class Measured(NamedTuple):
    """Result of a load: records per second, and the milliseconds in which 50 and 99 of 100 answers came."""

    rate: float
    p50_ms: float
    p99_ms: float


class Objective(msgspec.Struct, frozen=True):
    """Goal of tuning. `latency_ms` is the limit for 99 of 100 answers. 0: no limit."""

    latency_ms: float = 0.0

    @classmethod
    def parse(cls, value: object) -> "Objective":
        """Read `throughput`, `latency: 20`, or `{"latency": 20}` as YAML gives it.

        Raises:
            ValueError: the value has another form.
        """
        if isinstance(value, Mapping):
            value = ", ".join(f"{key}: {inner}" for key, inner in value.items())
        text = str(value).strip().lower()
        if text == THROUGHPUT:
            return cls()
        match = _LATENCY.fullmatch(text)
        try:
            latency_ms = float(match[1].removesuffix("ms")) if match else 0.0
        except ValueError:
            latency_ms = 0.0
        if not 0 < latency_ms < math.inf:
            raise ValueError(_WRONG)
        return cls(latency_ms)

    def __str__(self) -> str:
        return f"latency: {self.latency_ms:g}" if self.latency_ms else THROUGHPUT

    def met(self, measured: Measured) -> bool:
        """Return whether the answers come within the limit."""
        return not self.latency_ms or measured.p99_ms <= self.latency_ms

    def gain(self, one: Measured, other: Measured) -> float:
        """Return the ratio of two results: above 1 if the first result is better.

        If both results meet the limit, the ratio compares records per second. If neither does, the ratio compares latencies.
        If only the first or only the second result meets the limit, the ratio is infinite or 0.
        """
        if self.met(one) and self.met(other):
            return one.rate / other.rate if other.rate else math.inf
        if self.met(one) or self.met(other):
            return math.inf if self.met(one) else 0.0
        return other.p99_ms / one.p99_ms
