"""How far this clock and the store's are apart: leases are judged by clocks that agree."""

from datetime import timedelta
from typing import Final

from outlast.clock import Clock
from outlast.errors import ClockSkewTooLarge
from outlast.store.keyvalue.engine import Engine

COARSE: Final = timedelta(seconds=1)
"""A server tells its time to the second."""

NOTABLE: Final = timedelta(seconds=2)
"""So far apart is worth a word, long before it is refused."""


async def require_small_skew(engine: Engine, clock: Clock, allowed: timedelta) -> None:
    """ClockSkewTooLarge if the two differ by more than is allowed; where a server tells no time, none."""
    apart = await _apart(engine, clock)
    if apart > allowed + COARSE:
        raise ClockSkewTooLarge(
            f"this machine's clock and the store's are {apart.total_seconds():.0f} s apart, "
            f"and {allowed.total_seconds():.0f} s are allowed; set this machine's clock, "
            "or give max_skew"
        )


async def concerns(engine: Engine, clock: Clock, allowed: timedelta) -> list[str]:
    """What an operator should know before it is too much."""
    apart = await _apart(engine, clock)
    if apart <= min(NOTABLE, allowed):
        return []
    much = f"{apart.total_seconds():.0f} s apart"
    most = f"more than {allowed.total_seconds():.0f} s"
    return [
        f"this machine's clock and the store's are {much}; at {most} nothing starts: keep NTP on"
    ]


async def _apart(engine: Engine, clock: Clock) -> timedelta:
    theirs = await engine.time()
    return timedelta(0) if theirs is None else abs(clock.now() - theirs)
