"""Settings of the autoscaler: the section `autoscale` of config.yaml."""

import re
from collections.abc import Mapping
from datetime import UTC, datetime, tzinfo
from pathlib import Path
from typing import Final
from zoneinfo import ZoneInfo

from pydantic import Field, field_validator

from cluster_serving.client.servers.config.loading import load
from cluster_serving.client.servers.config.spellings import ConfigError, Spellings
from cluster_serving.node.config.group import Group

_HOURS = re.compile(r"(\d{1,2})-(\d{1,2})")
_EXPECTED_HOURS = "must have hours such as 8-18 or 22-6, from 0 to 24, each with a number of nodes"
_DAY = 24
_MOST = 10_000

SPELLINGS: Final = Spellings(aliases={"targetutilization": "targetUtilisation"}, own="autoscale")


class Autoscale(Group):
    """Settings of the autoscaler."""

    min: int = Field(
        default=1,
        ge=0,
        le=_MOST,
        description="Fewest nodes. 0: none after a time without records; the first record wakes one.",
    )
    max: int = Field(default=10, ge=1, le=_MOST, description="Most nodes.")
    target_wait_s: float = Field(
        default=5,
        ge=0.1,
        le=86_400,
        alias="targetWait",
        description="Seconds that a record may wait before a worker takes it.",
    )
    target_utilisation: float = Field(
        default=0.9,
        ge=0.1,
        le=1,
        description="Share of a node's speed that is planned for. The rest is for fluctuations.",
    )
    scale_down_window_s: float = Field(
        default=300,
        ge=0,
        le=86_400,
        alias="scaleDownWindow",
        description="Seconds for which fewer nodes must have been enough before a node is stopped.",
    )
    frontends_min: int = Field(default=1, ge=1, le=_MOST, description="Fewest frontends, where they are scaled.")
    frontends_max: int = Field(default=0, ge=0, le=_MOST, description="Most frontends. 0: their number is not changed.")
    frontend_requests: int = Field(
        default=1000, ge=1, description="Open requests that one frontend may have before there are more frontends."
    )
    schedule: dict[str, int] = Field(
        default={},
        description="Fewest nodes by hours of the day, as in {8-18: 4, 22-6: 0}, in place of min within them.",
    )
    time_zone: str = Field(default="UTC", description="Time zone of schedule, such as Europe/Berlin.")
    dry_run: bool = Field(default=False, description="true: decisions are logged, and nothing is changed.")

    @field_validator("schedule", mode="before")
    @classmethod
    def _by_hours(cls, value: object) -> object:
        if not isinstance(value, dict):
            raise ValueError(_EXPECTED_HOURS)
        return value

    @field_validator("schedule")
    @classmethod
    def _hours(cls, value: dict[str, int]) -> dict[str, int]:
        for hours, number in value.items():
            found = _HOURS.fullmatch(hours.replace(" ", ""))
            if found is None or max(map(int, found.groups())) > _DAY or int(found[1]) == int(found[2]):
                raise ValueError(_EXPECTED_HOURS)
            if number < 0:
                raise ValueError(f"must have no fewer than 0 nodes, and has {number}")
        return value

    @field_validator("time_zone")
    @classmethod
    def _known(cls, value: str) -> str:
        _zone(value)
        return value

    def least_at(self, time: datetime) -> int:
        """Return the fewest nodes at a time, which has a time zone. Of several entries of the schedule the highest counts."""
        hour = time.astimezone(_zone(self.time_zone)).hour
        found = [number for hours, number in self.schedule.items() if _is_within(hour, hours)]
        return max(found) if found else self.min


def load_autoscale(path: Path | None, environ: Mapping[str, str], flags: Mapping[str, object]) -> Autoscale:
    """Read and check the settings: flag, then environment, then the section `autoscale` of a file, then default.

    Raises:
        ConfigError: a setting is wrong. The message starts with the place.
    """
    loaded = load(Autoscale, SPELLINGS, path, environ, flags)
    settings, found = loaded.config, loaded.found.settings
    for key, least in (("min", settings.min), ("schedule", max(settings.schedule.values(), default=0))):
        if least > settings.max:
            where = f"{(found.get(key) or found['max']).where}: "
            raise ConfigError(f"{where}{key} of autoscale has {least} nodes, but max is {settings.max}: raise max")
    if 0 < settings.frontends_max < settings.frontends_min:
        where = f"{(found.get('frontendsMin') or found['frontendsMax']).where}: "
        raise ConfigError(
            f"{where}frontendsMin of autoscale is {settings.frontends_min}, but frontendsMax is {settings.frontends_max}: raise it"
        )
    return settings


def _zone(name: str) -> tzinfo:
    if name == "UTC":
        return UTC
    try:
        return ZoneInfo(name)
    except (ValueError, OSError, KeyError) as error:  # KeyError: no file of this name
        raise ValueError("must be a time zone of this machine, such as Europe/Berlin") from error


def _is_within(hour: int, hours: str) -> bool:
    first, last = (int(text) % _DAY for text in hours.replace(" ", "").split("-"))
    return (hour - first) % _DAY < ((last - first) % _DAY or _DAY)
