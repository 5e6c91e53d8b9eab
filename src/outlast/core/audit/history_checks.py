"""Invariants between a job's state row, its runs and its events.

Times are never compared for order, because an operator may set the wall clock back. Rows
written by one transaction have the same time, and that is checked.
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
"""Deliveries whose jobs have at most one run."""

ENDING: Final = frozenset({RunStatus.SUCCEEDED, RunStatus.SKIPPED, RunStatus.CANCELLED})
"""Ends of a run that end its job too."""

CLOSED: Final = frozenset(RunStatus) - {RunStatus.RUNNING}
"""Statuses of a run that has ended."""

STATES_OF_TABLE: Final[Mapping[StateTable, frozenset[State]]] = MappingProxyType(
    {
        StateTable.WAITING: WAITING,
        StateTable.OPEN: frozenset({State.RUNNING}),
        StateTable.END: FINAL,
    }
)
_UNSUCCESSFUL: Final = frozenset({RunStatus.FAILED, RunStatus.LOST, RunStatus.RELEASED})
EXPLAINED_BY: Final[Mapping[str, frozenset[str | None]]] = MappingProxyType(
    {
        State.SUCCEEDED: frozenset({RunStatus.SUCCEEDED}),
        State.FAILED: _UNSUCCESSFUL,
        State.DEAD_LETTER: _UNSUCCESSFUL,
        State.SKIPPED: frozenset({RunStatus.SKIPPED, None, *_UNSUCCESSFUL}),
        State.CANCELLED: frozenset({RunStatus.CANCELLED, None, *_UNSUCCESSFUL}),
    }
)
"""Possible ends of the last run for each end of the job; None: it never ran."""

END_OF_EVENT: Final[Mapping[str, State]] = MappingProxyType(
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
"""End states that events report."""

CONTINUING: Final = frozenset(
    {
        EventKind.RETRY,
        EventKind.REQUEUED,
        EventKind.RELEASED,
        EventKind.SNOOZED,
        EventKind.UNFIT,
    }
)
UNRELATED: Final = frozenset(
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
"""Events that report neither an end nor a further attempt."""


def check_single_state_row(job: JobAudit) -> Found:
    """Yield violations of: a job has exactly one state row, which repeats its fields."""
    if not job.places:
        yield (
            ViolationCode.DETACHED,
            "has no state row: it neither waits, runs nor has ended",
            [job.row],
        )
    if len(job.places) > 1:
        names = " and ".join(row.where for row in job.places)
        yield (
            ViolationCode.TWO_STATE_ROWS,
            f"has state rows in {names}",
            [job.place_row(p) for p in job.places],
        )
    for row in job.places:
        if not row.is_like_its_job:
            what = f"has another queue, type, name, delivery or group in {row.where}"
            yield ViolationCode.STATE_ROW_MISMATCH, what, [job.row, job.place_row(row)]


def _check_known_states(job: JobAudit) -> Found:
    for row in job.places:
        if row.state not in STATES_OF_TABLE[row.where]:
            what = f"is {row.state!r} in {row.where}, which is not a state of that table"
            yield ViolationCode.UNKNOWN_STATE, what, [job.place_row(row)]
    for run in job.runs:
        if run.status not in CLOSED:
            what = f"has an ended run {run.token} with the unknown status {run.status!r}"
            yield ViolationCode.UNKNOWN_STATE, what, [job.run_row(run.token)]


def _check_at_most_once(job: JobAudit) -> Found:
    if job.delivery not in AT_MOST_ONCE:
        return
    for row in job.places:
        if row.where is StateTable.WAITING and row.token:
            what = f"({job.delivery}) was started and waits again"
            yield ViolationCode.WAITS_AGAIN, what, [job.place_row(row)]
    rows = [*(job.run_row(run.token) for run in job.runs), *job.open_rows]
    if len(rows) > 1:
        yield ViolationCode.RAN_TWICE, f"({job.delivery}) has {len(rows)} runs", rows


def _check_tokens(job: JobAudit) -> Found:
    last = job.last_token
    tokens = [0, *(run.token for run in job.runs)]
    gaps = [(was, token) for was, token in pairwise(tokens) if token != was + 1]
    for was, token in gaps:
        what = f"has a run of token {token} after {was or 'none'}"
        yield ViolationCode.RUN_MISSING, what, [job.run_row(token)]
    for row in job.places:
        is_open = row.where is StateTable.OPEN
        if is_open and row.token <= last:
            what = f"has an open run of token {row.token} and an ended one of token {last}"
            yield ViolationCode.OPEN_NOT_LAST, what, [job.place_row(row), job.run_row(last)]
        elif row.token != last + is_open:
            what = f"has token {row.token} in {row.where}, but its last ended run has {last}"
            yield ViolationCode.TOKEN_MISMATCH, what, [job.place_row(row), *job.last_rows]


def _check_runs(job: JobAudit) -> Found:
    for run in job.runs:
        if run.finished_at is None:
            what = f"has an ended run {run.token} without an end time"
            yield ViolationCode.RUN_WITHOUT_END, what, [job.run_row(run.token)]
        if run.has_result and run.status != RunStatus.SUCCEEDED:
            what = f"has a result of run {run.token}, which is {run.status}"
            yield ViolationCode.UNEXPECTED_RESULT, what, [job.run_row(run.token)]
        if not run.has_holder:
            what = f"has a run {run.token} of a worker that is not registered"
            yield ViolationCode.UNKNOWN_HOLDER, what, [job.run_row(run.token)]
    if any(not row.has_holder for row in job.places):
        yield (
            ViolationCode.UNKNOWN_HOLDER,
            "has an open run of a worker that is not registered",
            job.open_rows,
        )


def _check_no_run_after_end(job: JobAudit) -> Found:
    on = [job.place_row(row) for row in job.places if row.where is not StateTable.END]
    for number, run in enumerate(job.runs, 1):
        if run.status in ENDING and (job.runs[number:] or on):
            what = f"continued after run {run.token}, which is {run.status}"
            later = [job.run_row(other.token) for other in job.runs[number:]]
            yield ViolationCode.CONTINUED_AFTER_END, what, [job.run_row(run.token), *later, *on]


def _check_end_and_last_run(job: JobAudit) -> Found:
    end = job.only(StateTable.END)
    if end is None:
        return
    status = job.runs[-1].status if job.runs else None
    if status not in EXPLAINED_BY.get(end.state, frozenset()):
        what = f"is {end.state}, but its last run is {status or 'missing'}"
        yield ViolationCode.END_UNEXPLAINED, what, [job.place_row(end), *job.last_rows]
    elif end.state == State.SUCCEEDED and not _ended_with_its_run(job, end):
        what = "succeeded at another time than its run"
        yield ViolationCode.END_TIME_MISMATCH, what, [job.place_row(end), *job.last_rows]


def _ended_with_its_run(job: JobAudit, end: StateRow) -> bool:
    """Return whether one write ended the job and its run; recovery ends a job later."""
    return job.tells(EventKind.RECOVERED) or end.at == job.runs[-1].finished_at is not None


def _check_end_event(job: JobAudit) -> Found:
    if len(job.places) != 1:
        return
    end = job.end
    ends = [event for event in job.events if event.kind in END_OF_EVENT or event.kind in CONTINUING]
    reported = END_OF_EVENT.get(ends[-1].kind) if ends else None
    state = end.state if end else job.places[0].state
    if reported is not None and reported != state:
        what = f"is {state}, but its last event reports {reported}"
        yield ViolationCode.EVENT_CONTRADICTS, what, [job.place_row(job.places[0]), ends[-1].row]
    elif end and state != State.SUCCEEDED and not any(_may_report(e, end) for e in job.events):
        yield (
            ViolationCode.END_EVENT_MISSING,
            f"is {state}, and no event reports it",
            [job.place_row(end)],
        )


def _may_report(event: AuditedEvent, end: StateRow) -> bool:
    """Return whether the event was written with the end and can be about it."""
    return event.at is not None and event.at == end.at and event.kind not in CONTINUING | UNRELATED


def _check_event_tokens(job: JobAudit) -> Found:
    known = max([job.last_token, *(row.token for row in job.places)])
    for event in job.events:
        if event.token > known and event.kind != EventKind.LATE_WRITE_REFUSED:
            what = f"has an event of token {event.token}, but no run after {known}"
            yield ViolationCode.EVENT_OF_NO_RUN, what, [event.row]


def _check_counts(job: JobAudit) -> Found:
    if job.before and job.before.id is None:
        return  # its earlier counts are unknown
    before = job.before if job.before and job.before.chained else None
    ended = Counter(run.status for run in job.runs)
    lost = ended[RunStatus.LOST] + ((before and before.losses) or 0)
    failed = ended[RunStatus.FAILED] + ended[RunStatus.LOST] + ((before and before.failures) or 0)
    for row in job.places if len(job.places) == 1 else ():
        if (row.failures, row.losses) != (failed, lost):
            what = (
                f"counts {row.failures} failures and {row.losses} losses; "
                f"its runs and its chain have {failed} and {lost}"
            )
            yield ViolationCode.COUNTS_MISMATCH, what, [job.place_row(row)]


CHECKS: Final[tuple[Check, ...]] = (
    check_single_state_row,
    _check_known_states,
    _check_at_most_once,
    _check_tokens,
    _check_runs,
    _check_no_run_after_end,
    _check_end_and_last_run,
    _check_end_event,
    _check_event_tokens,
    _check_counts,
)
