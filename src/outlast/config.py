"""Settings with their defaults and validation."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from datetime import timedelta
from os import PathLike
from pathlib import Path
from typing import Any, Final, Literal, TypedDict, Unpack, get_args

from outlast.core.duration import MICROSECOND, Duration, format_exact, parse_duration
from outlast.core.limits import check_name
from outlast.core.log_capture import LogCapture, check_log_capture
from outlast.core.refusals import MAX_UNFIT
from outlast.errors import ConfigurationError

RENEWALS_PER_LEASE: Final = 3
"""A lease lasts at least this many renewal intervals, so it survives two failed renewals."""

TRANSACTION: Final = timedelta(seconds=4)
"""Default of `transaction`; shorter on a store with one write lock, if the lease is short."""

TRANSACTIONS_PER_WRITE: Final = 2
"""Handler transactions that may pass before another write, on a store with one write lock."""

WRITE_SLACK: Final = timedelta(seconds=1)
"""Time for the writes themselves between a renewal and the end of its lease."""

SHORTEST: Final = timedelta(milliseconds=1)
"""Shortest interval that can be set."""

SHORTEST_RESERVATION: Final = timedelta(seconds=1)
LONGEST_RESERVATION: Final = timedelta(hours=1)
LONGEST_UNFIT: Final = timedelta(days=366)
"""Longest `max_unfit`."""
MAX_LOCK_NAME: Final = 100
"""Longest name of a worker or scope."""

MAX_COUNT: Final = 100_000
"""Largest number of jobs in a setting."""

TICK: Final = timedelta(seconds=1)
"""Default of `tick`, unless the store has another (DynamoDB: 3 s)."""

POLL: Final = timedelta(milliseconds=500)
"""Default of `poll`, unless the store has another (DynamoDB: 5 s)."""


Topology = Literal["pool", "single"]
UnknownOwnerPolicy = Literal["fail", "threshold", "leave"]


class SettingOptions(TypedDict, total=False):
    """Keyword arguments of `Outlast(url, …)`; see `Settings`."""

    lease: Duration
    renew: Duration
    tick: Duration
    poll: Duration
    grace: Duration
    max_silence: Duration
    lifespan_timeout: Duration
    transaction: Duration
    reservation: Duration
    direct_wait: Duration
    max_unfit: Duration
    retention: Duration | None
    prune_batch: int
    concurrency: int
    prefetch: int
    logs: str | PathLike[str]
    log_capture: LogCapture
    uvloop: bool
    topology: Topology
    scope: str
    unknown_owner: UnknownOwnerPolicy | None


@dataclass(frozen=True, slots=True, init=False)
class Settings:
    """Durations, intervals and limits of an app: `Settings(lease="30s", renew="10s")`.

    Durations are timedeltas, or text such as "500ms", "15s", "5m" or "1h30m".

    Attributes:
        lease: How long a lease lasts without a renewal (15 s). Then another worker may reclaim
            the run. At least three times `renew`.
        renew: Interval at which a worker renews its leases and sends its heartbeat (5 s).
        tick: Interval of maintenance: expired leases, missed deadlines, due jobs (1 s, or the
            store's default).
        poll: Longest wait for a job that no notification announced (500 ms, or the store's
            default).
        grace: How long running jobs may continue after their worker is asked to stop (30 s).
            The rest are released.
        max_silence: How long a worker process may send no heartbeat before the watchdog kills
            it (10 min).
        lifespan_timeout: How long the start of the app's lifespan may take, and its end (30 s).
        transaction: How long `run.transaction()` may last (4 s, or less if the lease is short).
            On SQLite, where it holds the only write lock, two of them and a second must fit
            between a renewal and the end of its lease.
        reservation: How long a direct run reserves its queue without a renewal (5 min). From 1 s
            to 1 h.
        direct_wait: How long a direct run waits for its queue and for a worker (1 min).
        max_unfit: How long workers may refuse a job because its params do not fit their code,
            from the first refusal on (1 h). Then it becomes a dead letter; 0 means at once.
        retention: How long ended jobs are kept (30 d); None keeps them for ever.
        prune_batch: Most ended jobs deleted in one pruning step (500).
        concurrency: Jobs a worker process runs at a time (10).
        prefetch: Jobs a worker may claim ahead of a free execution slot (1500).
        logs: Folder for the output of commands, one file per run (`outlast-logs`). Workers delete
            files older than `retention` whose jobs have ended.
        log_capture: Whether what runs log is kept with them, unless their type says otherwise:
            True, False, or a level such as "WARNING" (from INFO). On etcd and DynamoDB only types
            that ask for it are captured.
        uvloop: Whether the processes of `outlast worker` run on uvloop, if it is installed (True).
        topology: `pool`: any number of workers. `single`: each worker refuses to start while
            another one of the same scope runs.
        scope: The name within which a `single` worker is the only one (`default`).
        unknown_owner: What a starting worker does with open runs whose owner is unknown: `fail`
            closes them, `threshold` those whose lease has expired, `leave` none. To a `single`
            worker every other name is unknown. Default: `fail` if single, else `threshold`.

    Raises:
        ValueError: A value is out of range; the message names the setting.
    """

    lease: timedelta
    renew: timedelta
    tick: timedelta
    poll: timedelta
    grace: timedelta
    max_silence: timedelta
    lifespan_timeout: timedelta
    transaction: timedelta
    reservation: timedelta
    direct_wait: timedelta
    max_unfit: timedelta
    retention: timedelta | None
    prune_batch: int
    concurrency: int
    prefetch: int
    logs: Path
    log_capture: LogCapture
    uvloop: bool
    topology: Topology
    scope: str
    unknown_owner: UnknownOwnerPolicy | None
    _unset: frozenset[str] = field(repr=False, compare=False)  # settings with the store's default

    def __init__(
        self,
        *,
        lease: Duration = "15s",
        renew: Duration = "5s",
        tick: Duration | None = None,
        poll: Duration | None = None,
        grace: Duration = "30s",
        max_silence: Duration = "10m",
        lifespan_timeout: Duration = "30s",
        transaction: Duration | None = None,
        reservation: Duration = "5m",
        direct_wait: Duration = "1m",
        max_unfit: Duration = MAX_UNFIT,
        retention: Duration | None = "30d",
        prune_batch: int = 500,
        concurrency: int = 10,
        prefetch: int = 1500,
        logs: str | PathLike[str] = "outlast-logs",
        log_capture: LogCapture = True,
        uvloop: bool = True,
        topology: Topology = "pool",
        scope: str = "default",
        unknown_owner: UnknownOwnerPolicy | None = None,
    ) -> None:
        defaults = {"tick": (tick, TICK), "poll": (poll, POLL)}
        defaults["transaction"] = transaction, TRANSACTION
        unset = [name for name, (span, _) in defaults.items() if span is None]
        object.__setattr__(self, "_unset", frozenset(unset))
        tick, poll, transaction = (
            default if span is None else span for span, default in defaults.values()
        )
        spans = {"lease": lease, "renew": renew, "tick": tick, "poll": poll}
        for name, span in {
            **spans,
            "transaction": transaction,
            "max_silence": max_silence,
            "lifespan_timeout": lifespan_timeout,
            "direct_wait": direct_wait,
        }.items():
            object.__setattr__(self, name, _positive(span, what=name))
        object.__setattr__(self, "reservation", _reservation(reservation))
        object.__setattr__(self, "grace", _duration(grace, what="grace"))
        object.__setattr__(self, "max_unfit", _max_unfit(max_unfit))
        kept_for = None if retention is None else _duration(retention, what="retention")
        object.__setattr__(self, "retention", kept_for)
        object.__setattr__(self, "prune_batch", check_count(prune_batch, what="prune_batch"))
        object.__setattr__(self, "concurrency", check_count(concurrency, what="concurrency"))
        object.__setattr__(self, "prefetch", check_count(prefetch, what="prefetch", least=0))
        object.__setattr__(self, "logs", Path(logs))
        object.__setattr__(self, "log_capture", _log_capture(log_capture))
        object.__setattr__(self, "uvloop", _flag(uvloop, what="uvloop"))
        topologies, policies = get_args(Topology), (None, *get_args(UnknownOwnerPolicy))
        object.__setattr__(self, "topology", _one_of(topologies, topology, what="topology"))
        object.__setattr__(self, "scope", check_lock_name(scope, what="scope"))
        policy = _one_of(policies, unknown_owner, what="unknown_owner")
        object.__setattr__(self, "unknown_owner", policy)
        if self.lease < RENEWALS_PER_LEASE * self.renew:
            raise ConfigurationError(
                f"lease is {self.lease} and renew is {self.renew}; a lease must last at least "
                f"{RENEWALS_PER_LEASE} renewals; lengthen lease or shorten renew"
            )

    def dump(self) -> dict[str, Any]:
        """Return the settings for JSON: durations in microseconds, paths as text."""
        return {name: _to_json(getattr(self, name)) for name in _names()}

    @classmethod
    def load(cls, dumped: Mapping[str, Any]) -> "Settings":
        """Return the settings that `dump` encoded."""
        spans = {each.name for each in fields(cls) if "timedelta" in str(each.type)}
        return cls(
            **{
                name: value if value is None or name not in spans else value * MICROSECOND
                for name, value in dumped.items()
            }
        )

    def with_(self, **changes: Unpack[SettingOptions]) -> "Settings":
        """Return a copy with some settings changed."""
        given: dict[str, Any] = {
            name: getattr(self, name) for name in _names() if name not in self._unset
        }
        return Settings(**{**given, **changes})

    def with_store_defaults(self, *, poll: timedelta, tick: timedelta) -> "Settings":
        """Return a copy with the store's defaults for `poll` and `tick` that were not given."""
        defaults: dict[str, Any] = {"poll": poll, "tick": tick}
        return self.with_(**{name: defaults[name] for name in self._unset & defaults.keys()})

    def for_one_write_lock(self) -> "Settings":
        """Return a copy for a store on which handler transactions hold the only write lock.

        A renewal must reach the store though two of them pass first. Raises ConfigurationError
        for a `transaction` that is too long for that.
        """
        between = self.lease - self.renew
        longest = (between - min(WRITE_SLACK, between / 5)) / TRANSACTIONS_PER_WRITE
        if self.transaction <= longest:
            return self
        if "transaction" in self._unset:
            return self.with_(transaction=longest)
        least = self.renew + TRANSACTIONS_PER_WRITE * self.transaction + WRITE_SLACK
        spans = (self.transaction, self.lease, self.renew, least, longest)
        transaction, lease, renew, lease_needed, transaction_allowed = map(format_exact, spans)
        raise ConfigurationError(
            f"transaction is {transaction}, lease {lease} and renew {renew}; on SQLite two "
            "transactions and a second must fit between a renewal and the end of its lease; set "
            f'lease="{lease_needed}" or transaction="{transaction_allowed}"'
        )


def _names() -> list[str]:
    return [each.name for each in fields(Settings) if not each.name.startswith("_")]


def _to_json(value: Any) -> Any:
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


def _log_capture(value: LogCapture) -> LogCapture:
    try:
        return check_log_capture(value)
    except ValueError as error:
        raise ConfigurationError(str(error)) from error


def _reservation(value: Duration) -> timedelta:
    span = _duration(value, what="reservation")
    if not SHORTEST_RESERVATION <= span <= LONGEST_RESERVATION:
        raise ConfigurationError(
            f'reservation is {span}; it must last from 1 s to 1 h, such as "5m"'
        )
    return span


def _flag(value: bool, *, what: str) -> bool:
    if not isinstance(value, bool):
        raise ConfigurationError(f"{what} is {value!r:.60}; use True or False")
    return value


def _max_unfit(value: Duration) -> timedelta:
    span = _duration(value, what="max_unfit")
    if span > LONGEST_UNFIT:
        raise ConfigurationError(
            f'max_unfit is {span}; it must last at most {LONGEST_UNFIT.days} days, such as "1d"'
        )
    return span


def _one_of(choices: tuple[Any, ...], value: Any, *, what: str) -> Any:
    if value not in choices:
        raise ConfigurationError(
            f"{what} is {value!r:.60}; use one of {', '.join(map(repr, choices))}"
        )
    return value


def check_lock_name(name: str, *, what: str) -> str:
    """Return `name` if a lock can have it; ConfigurationError names `what` otherwise."""
    if isinstance(name, str) and len(name) > MAX_LOCK_NAME:
        raise ConfigurationError(f"{what} has {len(name)} characters; use at most {MAX_LOCK_NAME}")
    return check_name(name, what=what)


def check_count(value: int, *, what: str, least: int = 1) -> int:
    """Return `value` if it can be a number of jobs; ConfigurationError names `what` otherwise."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise ConfigurationError(f"{what} is {value!r:.60}; use a whole number")
    if not least <= value <= MAX_COUNT:
        raise ConfigurationError(f"{what} is {value}; it must lie in {least}…{MAX_COUNT:,}")
    return value
