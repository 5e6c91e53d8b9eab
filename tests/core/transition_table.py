"""What must become of a job, spelled out by hand: every state, event and delivery.

`GRIDS` has a story in each cell, or a dot where the job refuses the event; `STORIES` tells each.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import product
from typing import Final

from outlast.core import event as ev
from outlast.core.delivery import Delivery
from outlast.core.event import Event
from outlast.core.ids import JobId
from outlast.core.position import Anchor, JobEdit, MoveTo
from outlast.core.refusals import Refusals
from outlast.core.state import Loss, RunStatus, State

GRIDS: Final = {
    Delivery.LEASE: """
            claim done fail  lose    back nap skip stop cancel due clear miss bury drift  go_on out
new         .     .    .     .       .    .   .    .    .      .   .     .    .    .      .     .
blocked     .     .    .     .       .    .   .    .    drop   .   free  .    .    .      .     out
scheduled   .     .    .     .       .    .   .    .    drop   due .     .    .    .      .     out
queued      store .    .     .       .    .   .    .    drop   .   .     late .    .      .     out
running     .     done retry requeue back nap skip stop mark   .   .     .    .    regain .     ask
retry_wait  .     .    .     .       .    .   .    .    drop   due .     .    bury .      .     out
succeeded   .     .    .     .       .    .   .    .    .      .   .     .    .    .      .     .
failed      .     .    .     .       .    .   .    .    .      .   .     .    .    .      .     .
dead_letter .     .    .     .       .    .   .    .    .      .   .     .    .    .      .     .
skipped     .     .    .     .       .    .   .    .    .      .   .     .    .    .      .     .
cancelled   .     .    .     .       .    .   .    .    .      .   .     .    .    .      .     .
""",
    Delivery.LINKED: """
            claim done fail   lose    back nap skip stop cancel due clear miss bury drift  go_on out
new         .     .    .      .       .    .   .    .    .      .   .     .    .    .      .     .
blocked     .     .    .      .       .    .   .    .    drop   .   free  .    .    .      .     out
scheduled   .     .    .      .       .    .   .    .    drop   due .     .    .    .      .     out
queued      store .    .      .       .    .   .    .    drop   .   .     late .    .      .     out
running     .     done follow succeed .    .   skip stop mark   .   .     .    .    onward .     ask
retry_wait  .     .    .      .       .    .   .    .    drop   due .     .    bury .      .     out
succeeded   .     .    .      .       .    .   .    .    .      .   .     .    .    .      .     .
failed      .     .    .      .       .    .   .    .    .      .   .     .    bury .      go_on .
dead_letter .     .    .      .       .    .   .    .    .      .   .     .    .    .      .     .
skipped     .     .    .      .       .    .   .    .    .      .   .     .    .    .      .     .
cancelled   .     .    .      .       .    .   .    .    .      .   .     .    .    .      .     .
""",
    Delivery.ONCE: """
            claim done fail  lose   back nap skip stop cancel due clear miss bury drift go_on out
new         .     .    .     .      .    .   .    .    .      .   .     .    .    .     .     .
blocked     .     .    .     .      .    .   .    .    drop   .   free  .    .    .     .     out
scheduled   .     .    .     .      .    .   .    .    drop   due .     .    .    .     .     out
queued      store .    .     .      .    .   .    .    drop   .   .     late .    .     .     out
running     .     done close perish .    .   skip stop mark   .   .     .    .    sink  .     ask
retry_wait  .     .    .     .      .    .   .    .    drop   due .     .    bury .     .     out
succeeded   .     .    .     .      .    .   .    .    .      .   .     .    .    .     .     .
failed      .     .    .     .      .    .   .    .    .      .   .     .    .    .     .     .
dead_letter .     .    .     .      .    .   .    .    .      .   .     .    .    .     .     .
skipped     .     .    .     .      .    .   .    .    .      .   .     .    .    .     .     .
cancelled   .     .    .     .      .    .   .    .    .      .   .     .    .    .     .     .
""",
}

ALIKE: Final = """
            edit  move   quit
new         .     .      .
blocked     held  sits_b quit
scheduled   later sits_s quit
queued      again sits_q quit
running     .     .      .
retry_wait  off   sits_r quit
succeeded   .     .      .
failed      .     .      .
dead_letter .     .      .
skipped     .     .      .
cancelled   .     .      .
"""
"""More columns, the same for every delivery."""

REFUSALS: Final = {Delivery.LEASE: "refuse", Delivery.LINKED: "pass_on", Delivery.ONCE: "waive"}
"""One more column, `unfit`: the stories of a running job. Every other state refuses the event."""

# counts: what is raised by one. next: a successor is written. yields: to a cancel request.
STORIES: Final = """
story   attempts  how       to          run       guard   kind             counts  next yields
done    any       any       succeeded   succeeded open    -                none    -    -
skip    any       any       skipped     skipped   open    skipped          none    -    -
stop    any       any       cancelled   cancelled open    cancelled        none    -    -
mark    any       any       running     -         open    cancel_requested none    -    -
back    any       any       queued      released  open    released         none    -    yields
nap     any       any       retry_wait  released  open    snoozed          none    -    yields

refuse  any       early     retry_wait  released  open    unfit            none    -    yields
refuse  any       late      dead_letter failed    open    dead_letter      failure -    -
pass_on any       early     failed      released  open    chained          none    next yields
pass_on any       late      dead_letter failed    open    dead_letter      failure -    -
waive   any       any       skipped     skipped   open    skipped          none    -    -

retry   left      transient retry_wait  failed    open    retry            failure -    yields
retry   unlimited transient retry_wait  failed    open    retry            failure -    yields
retry   spent     transient dead_letter failed    open    dead_letter      failure -    -
retry   any       permanent dead_letter failed    open    dead_letter      failure -    -
follow  left      transient failed      failed    open    chained          failure next yields
follow  unlimited transient failed      failed    open    chained          failure next yields
follow  spent     transient dead_letter failed    open    dead_letter      failure -    -
follow  any       permanent dead_letter failed    open    dead_letter      failure -    -
close   any       any       failed      failed    open    closed           failure -    -

requeue left      lapsed    queued      lost      lapsed  requeued         loss    -    yields
requeue left      known     queued      lost      open    requeued         loss    -    yields
requeue unlimited lapsed    queued      lost      lapsed  requeued         loss    -    yields
requeue unlimited known     queued      lost      open    requeued         loss    -    yields
requeue spent     lapsed    dead_letter lost      lapsed  dead_letter      loss    -    -
requeue spent     known     dead_letter lost      open    dead_letter      loss    -    -
succeed left      lapsed    failed      lost      lapsed  chained          loss    next yields
succeed left      known     failed      lost      open    chained          loss    next yields
succeed unlimited lapsed    failed      lost      lapsed  chained          loss    next yields
succeed unlimited known     failed      lost      open    chained          loss    next yields
succeed spent     lapsed    dead_letter lost      lapsed  dead_letter      loss    -    -
succeed spent     known     dead_letter lost      open    dead_letter      loss    -    -
perish  any       lapsed    failed      lost      lapsed  closed           loss    -    -
perish  any       known     failed      lost      open    closed           loss    -    -

drop    any       any       cancelled   -         waiting cancelled        none    -    -
quit    any       silent    cancelled   -         silent  abandoned        none    -    -
quit    any       dead      cancelled   -         waiting abandoned        none    -    -
due     any       any       queued      -         state   -                none    -    -
free    any       any       scheduled   -         state   unblocked        none    -    -
late    any       any       skipped     -         state   misfire          none    -    -
bury    any       any       dead_letter -         state   given_up         none    -    -

regain  left      runless   queued      lost      adrift  requeued         loss    -    -
regain  unlimited runless   queued      lost      adrift  requeued         loss    -    -
regain  spent     runless   dead_letter lost      adrift  dead_letter      loss    -    -
regain  any       succeeded succeeded   -         adrift  recovered        none    -    -
regain  any       skipped   skipped     -         adrift  skipped          none    -    -
regain  any       cancelled cancelled   -         adrift  cancelled        none    -    -
regain  left      failed    retry_wait  -         adrift  retry            none    -    -
regain  unlimited failed    retry_wait  -         adrift  retry            none    -    -
regain  spent     failed    dead_letter -         adrift  dead_letter      none    -    -
regain  any       hopeless  dead_letter -         adrift  dead_letter      none    -    -
regain  left      lost      queued      -         adrift  requeued         none    -    -
regain  unlimited lost      queued      -         adrift  requeued         none    -    -
regain  spent     lost      dead_letter -         adrift  dead_letter      none    -    -
regain  any       released  queued      -         adrift  released         none    -    -

onward  left      runless   failed      lost      adrift  chained          loss    next -
onward  unlimited runless   failed      lost      adrift  chained          loss    next -
onward  spent     runless   dead_letter lost      adrift  dead_letter      loss    -    -
onward  any       succeeded succeeded   -         adrift  recovered        none    -    -
onward  any       skipped   skipped     -         adrift  skipped          none    -    -
onward  any       cancelled cancelled   -         adrift  cancelled        none    -    -
onward  left      failed    failed      -         adrift  chained          none    next -
onward  unlimited failed    failed      -         adrift  chained          none    next -
onward  spent     failed    dead_letter -         adrift  dead_letter      none    -    -
onward  any       hopeless  dead_letter -         adrift  dead_letter      none    -    -
onward  left      lost      failed      -         adrift  chained          none    next -
onward  unlimited lost      failed      -         adrift  chained          none    next -
onward  spent     lost      dead_letter -         adrift  dead_letter      none    -    -
onward  left      released  failed      -         adrift  chained          none    next -
onward  unlimited released  failed      -         adrift  chained          none    next -
onward  spent     released  dead_letter -         adrift  dead_letter      none    -    -

sink    any       runless   failed      lost      adrift  closed           loss    -    -
sink    any       succeeded succeeded   -         adrift  recovered        none    -    -
sink    any       skipped   skipped     -         adrift  skipped          none    -    -
sink    any       cancelled cancelled   -         adrift  cancelled        none    -    -
sink    any       failed    failed      -         adrift  closed           none    -    -
sink    any       hopeless  failed      -         adrift  closed           none    -    -
sink    any       lost      failed      -         adrift  closed           none    -    -
sink    any       released  failed      -         adrift  closed           none    -    -

held    any       any       blocked     -         state   edited           none    -    -
later   any       any       scheduled   -         state   edited           none    -    -
again   any       priority  queued      -         state   edited           none    -    -
again   any       due       scheduled   -         state   edited           none    -    -
off     any       any       retry_wait  -         state   edited           none    -    -
sits_b  any       any       blocked     -         state   moved            none    -    -
sits_s  any       any       scheduled   -         state   moved            none    -    -
sits_q  any       any       queued      -         state   moved            none    -    -
sits_r  any       any       retry_wait  -         state   moved            none    -    -
out     any       stop      cancelled   -         waiting cancelled        none    -    -
out     any       skip      skipped     -         waiting skipped          none    -    -
ask     any       stop      running     -         open    cancel_requested none    -    -
ask     any       skip      refused     -         -       -                -       -    -

go_on   left      any       failed      -         state   chained          none    next -
go_on   unlimited any       failed      -         state   chained          none    next -
go_on   spent     any       dead_letter -         state   given_up         none    -    -
"""

ID: Final = JobId("the-job")
OTHER: Final = JobId("the-other-job")
DELAY: Final = timedelta(seconds=7)
AT: Final = datetime(2026, 1, 5, tzinfo=UTC)
HOUR: Final = timedelta(hours=1)
REFUSED: Final = Refusals(count=3, since=AT, workers=("w1",))
EVENTS: Final[dict[str, dict[str, list[Event]]]] = {
    "claim": {"any": [ev.Claimed()]},
    "done": {"any": [ev.Succeeded("1"), ev.Succeeded()]},
    "fail": {
        "transient": [ev.Failed("boom", DELAY)],
        "permanent": [ev.Failed("boom", DELAY, permanent=True)],
    },
    "lose": {
        "lapsed": [ev.Lost(Loss.LEASE_EXPIRED, "gone")],
        "known": [ev.Lost(loss, "gone") for loss in Loss if loss is not Loss.LEASE_EXPIRED],
    },
    "back": {"any": [ev.Released("shutdown")]},
    "nap": {"any": [ev.Snoozed(DELAY, "busy"), ev.Snoozed(DELAY)]},
    "unfit": {
        "early": [
            ev.Unfit("no field", "w1", HOUR),
            ev.Unfit("no field", "w1", HOUR, REFUSED, HOUR - DELAY),
        ],
        "late": [
            ev.Unfit("no field", "w1", HOUR, REFUSED, HOUR),
            ev.Unfit("no field", "w1", timedelta(0)),
        ],
    },
    "skip": {"any": [ev.Skipped("nothing new"), ev.Skipped()]},
    "stop": {"any": [ev.Stopped("asked"), ev.Stopped()]},
    "cancel": {"any": [ev.CancelRequested("by hand"), ev.CancelRequested()]},
    "due": {"any": [ev.FellDue()]},
    "clear": {"any": [ev.Unblocked()]},
    "miss": {"any": [ev.Misfired()]},
    "bury": {"any": [ev.GivenUp("no use")]},
    "drift": {
        "runless": [ev.DetachedJobFound(None)],
        "hopeless": [ev.DetachedJobFound(RunStatus.FAILED, "permanent")],
        "lost": [ev.DetachedJobFound(RunStatus.LOST, why) for why in (*Loss, None, "by hand")],
        **{
            ended: [ev.DetachedJobFound(RunStatus(ended), "why", "found at boot")]
            for ended in ("succeeded", "skipped", "cancelled", "failed", "released")
        },
    },
    "go_on": {"any": [ev.SuccessorMissing("startup_recovery")]},
    "edit": {
        "priority": [ev.Edited(JobEdit(priority=9))],
        "due": [ev.Edited(JobEdit(delay=DELAY)), ev.Edited(JobEdit(at=AT, priority=9))],
    },
    "move": {
        "any": [
            ev.Moved(MoveTo(Anchor.FRONT)),
            *[
                ev.Moved(MoveTo(where, OTHER))
                for where in (Anchor.BEFORE, Anchor.AFTER, Anchor.SWAP)
            ],
        ]
    },
    "out": {"stop": [ev.GroupStopped()], "skip": [ev.GroupStopped(skip=True)]},
    "quit": {
        "silent": [ev.Abandoned(ev.Abandonment.CALLER_SILENT)],
        "dead": [ev.Abandoned(ev.Abandonment.OWNER_DEAD)],
    },
}
ATTEMPTS: Final = {"left": (1, 3), "spent": (2, 3), "unlimited": (100, None)}
"""Failures before the event, and the most attempts there may be."""
COUNTED: Final = {("drift", how) for how in EVENTS["drift"]} - {("drift", "runless")} | {
    ("go_on", "any")
}
"""Events that come after the failure was counted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """A job as `decide` looks at it."""

    state: State
    delivery: Delivery
    failures: int = 0
    max_attempts: int | None = 5
    token: int = 4
    losses: int = 1
    id: JobId = ID


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One job and one event, and the line of `STORIES` that says what follows; None: refused."""

    job: Standing
    event: Event
    expected: dict[str, str] | None


def cells() -> dict[tuple[Delivery, State, str], str]:
    """The story of each (delivery, state, event), or a dot."""
    found = {}
    alike = ((delivery, ALIKE) for delivery in GRIDS)
    for delivery, grid in (*GRIDS.items(), *alike):
        head, *rows = (line.split() for line in grid.strip().splitlines())
        for state, *stories in rows:
            for event, story in zip(head, stories, strict=True):
                found[delivery, State(state), event] = story
    for delivery, state in product(GRIDS, State):
        found[delivery, state, "unfit"] = REFUSALS[delivery] if state is State.RUNNING else "."
    return found


def stories() -> list[dict[str, str]]:
    head, *rows = (line.split() for line in STORIES.splitlines() if line)
    return [dict(zip(head, row, strict=True)) for row in rows]


def cases(delivery: Delivery, state: State, event: str, story: str) -> Iterator[Case]:
    """A cell, repeated for every way its event may come and every number of attempts left."""
    for (how, events), (attempts, (failures, most)) in product(
        EVENTS[event].items(), ATTEMPTS.items()
    ):
        counted = failures + ((event, how) in COUNTED)
        job = Standing(state=state, delivery=delivery, failures=counted, max_attempts=most)
        expected = None if story in {".", "store"} else _expected(story, attempts, how)
        expected = None if expected and expected["to"] == "refused" else expected
        yield from (Case(job=job, event=each, expected=expected) for each in events)


def _expected(story: str, attempts: str, how: str) -> dict[str, str]:
    [expected] = [
        line
        for line in stories()
        if line["story"] == story
        and line["attempts"] in {attempts, "any"}
        and line["how"] in {how, "any"}
    ]
    return expected
