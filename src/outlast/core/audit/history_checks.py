"""A job's place, its runs, its end and its events, held against each other.

Moments are never compared for before and after: an operator may set the wall clock back. What one
write wrote bears one moment, and that is compared.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from itertools import pairwise
from types import MappingProxyType
from typing import Final

from outlast.core.audit.model import AuditedEvent, JobAudit, StateRow, StateTable
from outlast.core.audit.violation import ViolationCode
from outlast.core.delivery import Delivery
from outlast.core.event import EventKind
from outlast.core.state import FINAL, WAITING, RunStatus, State

Found = Iterator[tuple[ViolationCode, str, list[str]]]
Check = Callable[[JobAudit], Found]

AT_MOST_ONCE: Final = frozenset({Delivery.LINKED, Delivery.ONCE})
ENDING: Final = frozenset({RunStatus.SUCCEEDED, RunStatus.SKIPPED, RunStatus.CANCELLED})
"""How a run ends that its job does not outlive."""

CLOSED: Final = frozenset(RunStatus) - {RunStatus.RUNNING}
WORDS: Final[Mapping[StateTable, frozenset[State]]] = MappingProxyType(
    {
        StateTable.WAITING: WAITING,
        StateTable.OPEN: frozenset({State.RUNNING}),
        StateTable.END: FINAL,
    }
)
_UNDONE: Final = frozenset({RunStatus.FAILED, RunStatus.LOST, RunStatus.RELEASED})
EXPLAINED_BY: Final[Mapping[str, frozenset[str | None]]] = MappingProxyType(
    {
        State.SUCCEEDED: frozenset({RunStatus.SUCCEEDED}),
        State.FAILED: _UNDONE,
        State.DEAD_LETTER: _UNDONE,
        State.SKIPPED: frozenset({RunStatus.SKIPPED, None, *_UNDONE}),
        State.CANCELLED: frozenset({RunStatus.CANCELLED, None, *_UNDONE}),
    }
)
"""How the last run of a job ended that came to such an end; None: it never ran."""

TELLS: Final[Mapping[str, State]] = MappingProxyType(
    {
        EventKind.CHAINED: State.FAILED,
        EventKind.CLOSED: State.FAILED,
        EventKind.DEAD_LETTER: State.DEAD_LETTER,
        EventKind.GIVEN_UP: State.DEAD_LETTER,
        EventKind.SKIPPED: State.SKIPPED,
        EventKind.MISFIRE: State.SKIPPED,
        EventKind.CANCELLED: State.CANCELLED,
        EventKind.ABANDONED: State.CANCELLED,
        EventKind.RECOVERED: State.SUCCEEDED,
    }
)
"""Events that tell of an end, and of which."""

GOES_ON: Final = frozenset(
    {EventKind.RETRY, EventKind.REQUEUED, EventKind.RELEASED, EventKind.SNOOZED}
)
ASIDE: Final = frozenset(
    {
        EventKind.CANCEL_REQUESTED,
        EventKind.UNBLOCKED,
        EventKind.RETRIED,
        EventKind.EDITED,
        EventKind.MOVED,
        EventKind.GROUP_STOPPED,
        EventKind.LATE_WRITE_REFUSED,
    }
)
"""Events that tell neither of an end nor that the job goes on."""


def check_single_state_row(job: JobAudit) -> Found:
    if not job.places:
        yield ViolationCode.STANDS_NOWHERE, "neither waits, runs nor has ended", [job.row]
    if len(job.places) > 1:
        names = " and ".join(place.where for place in job.places)
        yield (
            ViolationCode.STANDS_TWICE,
            f"stands in {names}",
            [job.place_row(p) for p in job.places],
        )
    for place in job.places:
        if not place.is_like_its_job:
            told = f"has another queue, type, name, delivery or group in {place.where}"
            yield ViolationCode.UNLIKE_ITS_JOB, told, [job.row, job.place_row(place)]


def _words_are_known(job: JobAudit) -> Found:
    for place in job.places:
        if place.state not in WORDS[place.where]:
            told = f"is {place.state!r} in {place.where}, which is no such state"
            yield ViolationCode.WORD_UNKNOWN, told, [job.place_row(place)]
    for run in job.runs:
        if run.status not in CLOSED:
            told = f"has a closed run {run.token} that is {run.status!r}, which is no such status"
            yield ViolationCode.WORD_UNKNOWN, told, [job.run_row(run.token)]


def _runs_at_most_once(job: JobAudit) -> Found:
    if job.delivery not in AT_MOST_ONCE:
        return
    for place in job.places:
        if place.where is StateTable.WAITING and place.token:
            told = f"({job.delivery}) was started and waits again"
            yield ViolationCode.WAITS_AGAIN, told, [job.place_row(place)]
    rows = [*(job.run_row(run.token) for run in job.runs), *job.open_rows]
    if len(rows) > 1:
        yield ViolationCode.RAN_TWICE, f"({job.delivery}) has {len(rows)} runs", rows


def _tokens_count_from_one(job: JobAudit) -> Found:
    last = job.last_token
    tokens = [0, *(run.token for run in job.runs)]
    gaps = [(was, token) for was, token in pairwise(tokens) if token != was + 1]
    for was, token in gaps:
        told = f"has a run of token {token} after {was or 'none'}"
        yield ViolationCode.RUN_MISSING, told, [job.run_row(token)]
    for place in job.places:
        is_open = place.where is StateTable.OPEN
        if is_open and place.token <= last:
            told = f"has an open run of token {place.token} and a closed one of token {last}"
            yield ViolationCode.OPEN_NOT_LAST, told, [job.place_row(place), job.run_row(last)]
        elif place.token != last + is_open:
            told = f"has token {place.token} in {place.where}, and its last closed run {last}"
            yield ViolationCode.TOKEN_APART, told, [job.place_row(place), *job.last_rows]


def _runs_are_whole(job: JobAudit) -> Found:
    for run in job.runs:
        if run.finished_at is None:
            told = f"has a closed run {run.token} without the moment of its end"
            yield ViolationCode.RUN_UNFINISHED, told, [job.run_row(run.token)]
        if run.has_result and run.status != RunStatus.SUCCEEDED:
            told = f"has a result of run {run.token}, which is {run.status}"
            yield ViolationCode.RESULT_ASTRAY, told, [job.run_row(run.token)]
        if not run.has_holder:
            told = f"has a run {run.token} of a worker that is not on record"
            yield ViolationCode.HOLDER_GONE, told, [job.run_row(run.token)]
    if any(not place.has_holder for place in job.places):
        yield (
            ViolationCode.HOLDER_GONE,
            "has an open run of a worker that is not on record",
            job.open_rows,
        )


def _ends_with_the_run_that_ends_it(job: JobAudit) -> Found:
    on = [job.place_row(place) for place in job.places if place.where is not StateTable.END]
    for number, run in enumerate(job.runs, 1):
        if run.status in ENDING and (job.runs[number:] or on):
            told = f"went on after run {run.token}, which is {run.status}"
            later = [job.run_row(other.token) for other in job.runs[number:]]
            yield ViolationCode.WENT_ON, told, [job.run_row(run.token), *later, *on]


def _end_is_explained(job: JobAudit) -> Found:
    end = job.only(StateTable.END)
    if end is None:
        return
    status = job.runs[-1].status if job.runs else None
    if status not in EXPLAINED_BY.get(end.state, frozenset()):
        told = f"is {end.state}, and its last run is {status or 'missing'}"
        yield ViolationCode.END_UNEXPLAINED, told, [job.place_row(end), *job.last_rows]
    elif end.state == State.SUCCEEDED and not _is_of_one_write(job, end):
        told = "succeeded at another moment than its run"
        yield ViolationCode.END_APART, told, [job.place_row(end), *job.last_rows]


def _is_of_one_write(job: JobAudit, end: StateRow) -> bool:
    """Its end and its last run; recovery ends a job later than its run, and says so."""
    return job.tells(EventKind.RECOVERED) or end.at == job.runs[-1].finished_at is not None


def _events_tell_the_end(job: JobAudit) -> Found:
    if len(job.places) != 1:
        return
    end = job.end
    ends = [event for event in job.events if event.kind in TELLS or event.kind in GOES_ON]
    told = TELLS.get(ends[-1].kind) if ends else None
    state = end.state if end else job.places[0].state
    if told is not None and told != state:
        what = f"is {state}, and its last event tells that it is {told}"
        yield ViolationCode.EVENT_CONTRADICTS, what, [job.place_row(job.places[0]), ends[-1].row]
    elif end and state != State.SUCCEEDED and not any(_may_tell(e, end) for e in job.events):
        yield (
            ViolationCode.END_UNTOLD,
            f"is {state}, and no event tells of it",
            [job.place_row(end)],
        )


def _may_tell(event: AuditedEvent, end: StateRow) -> bool:
    """Written with the end, and not about something else."""
    return event.at is not None and event.at == end.at and event.kind not in GOES_ON | ASIDE


def _events_are_of_its_runs(job: JobAudit) -> Found:
    known = max([job.last_token, *(place.token for place in job.places)])
    for event in job.events:
        if event.token > known and event.kind != EventKind.LATE_WRITE_REFUSED:
            told = f"has an event of token {event.token}, and no run after {known}"
            yield ViolationCode.EVENT_AHEAD, told, [event.row]


def _counts_are_borne_out(job: JobAudit) -> Found:
    if job.before and job.before.id is None:
        return  # what it went on from is not known
    before = job.before if job.before and job.before.chained else None
    ended = Counter(run.status for run in job.runs)
    lost = ended[RunStatus.LOST] + ((before and before.losses) or 0)
    failed = ended[RunStatus.FAILED] + ended[RunStatus.LOST] + ((before and before.failures) or 0)
    for place in job.places if len(job.places) == 1 else ():
        if (place.failures, place.losses) != (failed, lost):
            told = (
                f"counts {place.failures} failures and {place.losses} losses; "
                f"its runs and its chain make {failed} and {lost}"
            )
            yield ViolationCode.COUNTS_UNPROVEN, told, [job.place_row(place)]


CHECKS: Final[tuple[Check, ...]] = (
    check_single_state_row,
    _words_are_known,
    _runs_at_most_once,
    _tokens_count_from_one,
    _runs_are_whole,
    _ends_with_the_run_that_ends_it,
    _end_is_explained,
    _events_tell_the_end,
    _events_are_of_its_runs,
    _counts_are_borne_out,
)
