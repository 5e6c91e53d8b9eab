"""Shared by the trigger tests: claims, ends, slot history and an hourly schedule."""

from datetime import timedelta

from outlast import Outlast
from outlast.core.decide import decide
from outlast.core.event import Succeeded
from outlast.core.ids import Ids
from outlast.core.run import Claim, LeaseHolder
from outlast.core.schedule import SlotOutcome
from outlast.store.contract import Store
from outlast.testing.clock import START

HOUR, MINUTE = timedelta(hours=1), timedelta(minutes=1)


HOLDER = LeaseHolder(instance_id="worker-1", boot_id="boot-1")


RAN, LATE, MISSED = SlotOutcome.RAN, SlotOutcome.LATE, SlotOutcome.MISSED


COALESCED, OVERLAP = SlotOutcome.COALESCED, SlotOutcome.OVERLAP


async def take(store: Store, lease: timedelta = HOUR) -> list[Claim]:
    kinds = ("report", "brief", "greet")
    return await store.claim(HOLDER, queue="default", types=kinds, limit=10_000, lease=lease)


async def finish(store: Store, claims: list[Claim], ids: Ids) -> None:
    await store.apply([decide(each, Succeeded(), new_id=ids.job) for each in claims])


async def history(app: Outlast, name: str = "s") -> list[tuple[int, SlotOutcome]]:
    """The slots, first one first: minutes since the start, and what became of each."""
    rows = await app.schedules.history(name, limit=1000)
    return [((row.slot.at - START) // MINUTE, row.outcome) for row in rows[::-1]]


async def hourly(app: Outlast, job_type: str = "report", **over: object) -> None:
    given = {"coalesce": True, "misfire_grace": "5m", **over}
    await app.schedules.save("s", "0 * * * *", job_type, **given)
