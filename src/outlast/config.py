"""Every setting and its default, checked once."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from datetime import timedelta
from os import PathLike
from pathlib import Path
from typing import Any, Final, TypedDict, Unpack

from outlast.core.duration import MICROSECOND, Duration, parse_duration
from outlast.errors import ConfigurationError

RENEWALS_PER_LEASE: Final = 3
"""A lease must outlive two renewals that failed."""

SHORTEST: Final = timedelta(milliseconds=1)
SHORTEST_RESERVATION: Final = timedelta(seconds=1)
LONGEST_RESERVATION: Final = timedelta(hours=1)
MOST_AT_ONCE: Final = 100_000

TICK: Final = timedelta(seconds=1)
POLL: Final = timedelta(milliseconds=500)
"""Unless the app says otherwise, or its store (DynamoDB: both 5 s)."""


class SettingOptions(TypedDict, total=False):
    """What `Outlast(url, …)` takes beside its url; see Settings."""

    lease: Duration
    renew: Duration
    tick: Duration
    poll: Duration
    grace: Duration
    max_silence: Duration
    transaction: Duration
    reservation: Duration
    direct_wait: Duration
    retention: Duration | None
    prune_batch: int
    concurrency: int
    prefetch: int
    logs: str | PathLike[str]


@dataclass(frozen=True, slots=True, init=False)
class Settings:
    """How long, how often and how many; `Settings(lease="30s", renew="10s")`.

    A value that cannot work raises ValueError and names the setting.
    """

    lease: timedelta  # how long a worker may be silent before its run is given to another
    renew: timedelta  # how often a worker renews its leases
    tick: timedelta  # how often reclaim, misfires and promotion look around
    poll: timedelta  # how often to look beneath the wake-ups
    grace: timedelta  # how long running jobs may take to end when their worker stops
    max_silence: timedelta  # how long a worker's process may show no life before it is ended
    transaction: timedelta  # how long `run.transaction()` may hold the store's write lock
    reservation: timedelta  # how long a direct run holds its queue though its caller is silent
    direct_wait: timedelta  # how long a direct run waits for its queue and for a worker
    retention: timedelta | None  # how long finished jobs are kept; None keeps them for ever
    prune_batch: int  # how many finished jobs one pruning step deletes at most
    concurrency: int  # how many jobs one worker runs at a time
    prefetch: int  # how many more it may hold ready, so that none waits for the store
    logs: Path  # the folder for the output of commands, one file per run
    _unset: frozenset[str] = field(repr=False, compare=False)  # those that a store may choose

    def __init__(
        self,
        *,
        lease: Duration = "15s",
        renew: Duration = "5s",
        tick: Duration | None = None,
        poll: Duration | None = None,
        grace: Duration = "30s",
        max_silence: Duration = "10m",
        transaction: Duration = "5s",
        reservation: Duration = "5m",
        direct_wait: Duration = "1m",
        retention: Duration | None = "30d",
        prune_batch: int = 500,
        concurrency: int = 10,
        prefetch: int = 1500,
        logs: str | PathLike[str] = "outlast-logs",
    ) -> None:
        left_open = [name for name, span in (("tick", tick), ("poll", poll)) if span is None]
        object.__setattr__(self, "_unset", frozenset(left_open))
        tick, poll = TICK if tick is None else tick, POLL if poll is None else poll
        spans = {"lease": lease, "renew": renew, "tick": tick, "poll": poll}
        for name, span in {
            **spans,
            "transaction": transaction,
            "max_silence": max_silence,
            "direct_wait": direct_wait,
        }.items():
            object.__setattr__(self, name, _positive(span, what=name))
        object.__setattr__(self, "reservation", _reservation(reservation))
        object.__setattr__(self, "grace", _duration(grace, what="grace"))
        kept = None if retention is None else _duration(retention, what="retention")
        object.__setattr__(self, "retention", kept)
        object.__setattr__(self, "prune_batch", check_count(prune_batch, what="prune_batch"))
        object.__setattr__(self, "concurrency", check_count(concurrency, what="concurrency"))
        object.__setattr__(self, "prefetch", check_count(prefetch, what="prefetch", least=0))
        object.__setattr__(self, "logs", Path(logs))
        if self.lease < RENEWALS_PER_LEASE * self.renew:
            raise ConfigurationError(
                f"lease is {self.lease} and renew is {self.renew}; a lease must last at least "
                f"{RENEWALS_PER_LEASE} renewals, so lengthen lease or shorten renew"
            )

    def dump(self) -> dict[str, Any]:
        """As JSON can carry them: spans in microseconds, paths as text."""
        return {name: _plain(getattr(self, name)) for name in _names()}

    @classmethod
    def load(cls, dumped: Mapping[str, Any]) -> "Settings":
        """What `dump` gave."""
        spans = {each.name for each in fields(cls) if "timedelta" in str(each.type)}
        return cls(
            **{
                name: value if value is None or name not in spans else value * MICROSECOND
                for name, value in dumped.items()
            }
        )

    def with_(self, **changes: Unpack[SettingOptions]) -> "Settings":
        """These settings with some of them changed."""
        now: dict[str, Any] = {
            name: getattr(self, name) for name in _names() if name not in self._unset
        }
        return Settings(**{**now, **changes})

    def with_store_defaults(self, *, poll: timedelta, tick: timedelta) -> "Settings":
        """These settings with what a store wants, where nobody has said anything else."""
        wanted: dict[str, Any] = {"poll": poll, "tick": tick}
        return self.with_(**{name: wanted[name] for name in self._unset})


def _names() -> list[str]:
    return [each.name for each in fields(Settings) if not each.name.startswith("_")]


def _plain(value: Any) -> Any:
    match value:
        case timedelta():
            return value // MICROSECOND
        case Path():
            return str(value)
        case _:
            return value


def _duration(value: Duration, *, what: str) -> timedelta:
    try:
        return parse_duration(value, what=what)
    except ValueError as error:
        raise ConfigurationError(str(error)) from error


def _positive(value: Duration, *, what: str) -> timedelta:
    span = _duration(value, what=what)
    if span < SHORTEST:
        raise ConfigurationError(f'{what} is {span}; it must last at least 1 ms, such as "5s"')
    return span


def _reservation(value: Duration) -> timedelta:
    span = _duration(value, what="reservation")
    if not SHORTEST_RESERVATION <= span <= LONGEST_RESERVATION:
        raise ConfigurationError(
            f'reservation is {span}; it must last from 1 s to 1 h, such as "5m"'
        )
    return span


def check_count(value: int, *, what: str, least: int = 1) -> int:
    """`value`, if it can be a number of jobs; ConfigurationError names `what` otherwise."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise ConfigurationError(f"{what} is {value!r:.60}; use a whole number")
    if not least <= value <= MOST_AT_ONCE:
        raise ConfigurationError(f"{what} is {value}; it must lie in {least}…{MOST_AT_ONCE:,}")
    return value
