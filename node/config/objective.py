"""What is looked for: the most records a second, or the most of those that are answered soon enough."""

import math
import re
from collections.abc import Mapping
from typing import NamedTuple

import msgspec

THROUGHPUT = "throughput"

_LATENCY = re.compile(r"latency\s*[:=]?\s*(.+)")
_WRONG = "must be throughput, or latency: and the milliseconds that 99 of 100 answers may take"


class Measured(NamedTuple):
    """What a load saw: records a second, and the milliseconds in which half of the answers came, and 99 of 100."""

    rate: float
    p50_ms: float
    p99_ms: float


class Objective(msgspec.Struct, frozen=True):
    """`latency_ms` is what 99 of 100 answers may take; 0: whatever they take."""

    latency_ms: float = 0.0

    @classmethod
    def parse(cls, value: object) -> "Objective":
        """Read `throughput`, `latency: 20`, or `{"latency": 20}` as YAML gives it.

        Raises:
            ValueError: it is none of these.
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
        """Whether answers come soon enough."""
        return not self.latency_ms or measured.p99_ms <= self.latency_ms

    def gain(self, one: Measured, other: Measured) -> float:
        """How many times as good one is as the other.

        By records a second where both are answered soon enough; infinite or 0 where one is not; by latency where neither is.
        """
        if self.met(one) and self.met(other):
            return one.rate / other.rate if other.rate else math.inf
        if self.met(one) or self.met(other):
            return math.inf if self.met(one) else 0.0
        return other.p99_ms / one.p99_ms
