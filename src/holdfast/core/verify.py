"""The invariants of a store's own history, held against what it says of each job.

Moments are never compared for before and after: an operator may set the wall clock back. What one
write wrote bears one moment, and that is compared.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from itertools import pairwise
from types import MappingProxyType
from typing import Final

from holdfast.core.delivery import Delivery
from holdfast.core.dossier import ClosedRun, Dossier, Place, Stray, Told, Where
from holdfast.core.event import Kind
from holdfast.core.state import FINAL, WAITING, RunStatus, State
from holdfast.core.violation import STRAYS, Code, Violation

Found = Iterator[tuple[Code, str, list[str]]]
Check = Callable[[Dossier], Found]

AT_MOST_ONCE: Final = frozenset({Delivery.CHAIN, Delivery.ONCE})
ENDING: Final = frozenset({RunStatus.SUCCEEDED, RunStatus.SKIPPED, RunStatus.CANCELLED})
"""How a run ends that its job does not outlive."""

CLOSED: Final = frozenset(RunStatus) - {RunStatus.RUNNING}
WORDS: Final[Mapping[Where, frozenset[State]]] = MappingProxyType(
    {Where.WAITING: WAITING, Where.OPEN: frozenset({State.RUNNING}), Where.END: FINAL}
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
        Kind.CHAINED: State.FAILED,
        Kind.CLOSED: State.FAILED,
        Kind.DEAD_LETTER: State.DEAD_LETTER,
        Kind.GIVEN_UP: State.DEAD_LETTER,
        Kind.SKIPPED: State.SKIPPED,
        Kind.MISFIRE: State.SKIPPED,
        Kind.CANCELLED: State.CANCELLED,
        Kind.RECOVERED: State.SUCCEEDED,
    }
)
"""Events that tell of an end, and of which."""

GOES_ON: Final = frozenset({Kind.RETRY, Kind.REQUEUED, Kind.RELEASED, Kind.SNOOZED})
ASIDE: Final = frozenset({Kind.CANCEL_REQUESTED, Kind.UNBLOCKED, Kind.LATE_WRITE_REFUSED})


def violations(dossier: Dossier) -> list[Violation]:
    """Every invariant that this job breaks; none in a store that nobody has broken."""
    found = (hit for check in CHECKS for hit in check(dossier))
    return [
        Violation(code=code, what=f"job {dossier.id} {what}", rows=tuple(rows), job_id=dossier.id)
        for code, what, rows in found
    ]


def stray_violation(stray: Stray) -> Violation:
    """What it means that this is there."""
    code, what = STRAYS[stray.kind]
    about = f"{what}: {stray.about}" if stray.about else what
    return Violation(code=code, what=about, rows=stray.rows, job_id=stray.job_id)


def _stands_in_one_place(job: Dossier) -> Found:
    if not job.places:
        yield Code.STANDS_NOWHERE, "neither waits, runs nor has ended", [_job(job)]
    if len(job.places) > 1:
        names = " and ".join(place.where for place in job.places)
        yield Code.STANDS_TWICE, f"stands in {names}", [_place(job, p) for p in job.places]
    for place in job.places:
        if not place.is_like_its_job:
            told = f"has another queue, type, name or delivery in {place.where}"
            yield Code.UNLIKE_ITS_JOB, told, [_job(job), _place(job, place)]


def _words_are_known(job: Dossier) -> Found:
    for place in job.places:
        if place.state not in WORDS[place.where]:
            told = f"is {place.state!r} in {place.where}, which is no such state"
            yield Code.WORD_UNKNOWN, told, [_place(job, place)]
    for run in job.runs:
        if run.status not in CLOSED:
            told = f"has a closed run {run.token} that is {run.status!r}, which is no such status"
            yield Code.WORD_UNKNOWN, told, [_run(job, run)]


def _runs_at_most_once(job: Dossier) -> Found:
    if job.delivery not in AT_MOST_ONCE:
        return
    for place in job.places:
        if place.where is Where.WAITING and place.token:
            told = f"({job.delivery}) was started and waits again"
            yield Code.WAITS_AGAIN, told, [_place(job, place)]
    rows = [*(_run(job, run) for run in job.runs), *_open(job)]
    if len(rows) > 1:
        yield Code.RAN_TWICE, f"({job.delivery}) has {len(rows)} runs", rows


def _tokens_count_from_one(job: Dossier) -> Found:
    last = _last_token(job)
    tokens = [0, *(run.token for run in job.runs)]
    gaps = [(was, token) for was, token in pairwise(tokens) if token != was + 1]
    for was, token in gaps:
        told = f"has a run of token {token} after {was or 'none'}"
        yield Code.RUN_MISSING, told, [_token(job, token)]
    for place in job.places:
        is_open = place.where is Where.OPEN
        if is_open and place.token <= last:
            told = f"has an open run of token {place.token} and a closed one of token {last}"
            yield Code.OPEN_NOT_LAST, told, [_place(job, place), _token(job, last)]
        elif place.token != last + is_open:
            told = f"has token {place.token} in {place.where}, and its last closed run {last}"
            yield Code.TOKEN_APART, told, [_place(job, place), *_last(job)]


def _runs_are_whole(job: Dossier) -> Found:
    for run in job.runs:
        if run.finished_at is None:
            told = f"has a closed run {run.token} without the moment of its end"
            yield Code.RUN_UNFINISHED, told, [_run(job, run)]
        if run.has_result and run.status != RunStatus.SUCCEEDED:
            told = f"has a result of run {run.token}, which is {run.status}"
            yield Code.RESULT_ASTRAY, told, [_run(job, run)]
        if not run.has_holder:
            told = f"has a run {run.token} of a worker that is not on record"
            yield Code.HOLDER_GONE, told, [_run(job, run)]
    if any(not place.has_holder for place in job.places):
        yield Code.HOLDER_GONE, "has an open run of a worker that is not on record", _open(job)


def _ends_with_the_run_that_ends_it(job: Dossier) -> Found:
    on = [_place(job, place) for place in job.places if place.where is not Where.END]
    for number, run in enumerate(job.runs, 1):
        if run.status in ENDING and (job.runs[number:] or on):
            told = f"went on after run {run.token}, which is {run.status}"
            later = [_run(job, other) for other in job.runs[number:]]
            yield Code.WENT_ON, told, [_run(job, run), *later, *on]


def _end_is_explained(job: Dossier) -> Found:
    end = _only(job, Where.END)
    if end is None:
        return
    status = job.runs[-1].status if job.runs else None
    if status not in EXPLAINED_BY.get(end.state, frozenset()):
        told = f"is {end.state}, and its last run is {status or 'missing'}"
        yield Code.END_UNEXPLAINED, told, [_place(job, end), *_last(job)]
    elif end.state == State.SUCCEEDED and not _is_of_one_write(job, end):
        told = "succeeded at another moment than its run"
        yield Code.END_APART, told, [_place(job, end), *_last(job)]


def _is_of_one_write(job: Dossier, end: Place) -> bool:
    """Its end and its last run; recovery ends a job later than its run, and says so."""
    return _tells(job, Kind.RECOVERED) or end.at == job.runs[-1].finished_at is not None


def _events_tell_the_end(job: Dossier) -> Found:
    if len(job.places) != 1:
        return
    end = job.end
    ends = [event for event in job.events if event.kind in TELLS or event.kind in GOES_ON]
    told = TELLS.get(ends[-1].kind) if ends else None
    state = end.state if end else job.places[0].state
    if told is not None and told != state:
        what = f"is {state}, and its last event tells that it is {told}"
        yield Code.EVENT_CONTRADICTS, what, [_place(job, job.places[0]), _event(ends[-1])]
    elif end and state != State.SUCCEEDED and not any(_may_tell(e, end) for e in job.events):
        yield Code.END_UNTOLD, f"is {state}, and no event tells of it", [_place(job, end)]


def _may_tell(event: Told, end: Place) -> bool:
    """Written with the end, and not about something else."""
    return event.at is not None and event.at == end.at and event.kind not in GOES_ON | ASIDE


def _events_are_of_its_runs(job: Dossier) -> Found:
    known = max([_last_token(job), *(place.token for place in job.places)])
    for event in job.events:
        if event.token > known and event.kind != Kind.LATE_WRITE_REFUSED:
            told = f"has an event of token {event.token}, and no run after {known}"
            yield Code.EVENT_AHEAD, told, [_event(event)]


def _counts_are_borne_out(job: Dossier) -> Found:
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
            yield Code.COUNTS_UNPROVEN, told, [_place(job, place)]


def _is_followed_as_it_may_be(job: Dossier) -> Found:
    after = [f"jobs id={job_id}" for job_id in job.successors]
    if len(after) > 1:
        yield Code.FOLLOWED_TWICE, f"has {len(after)} successors", [_job(job), *after]
    if after and job.end is None:
        yield Code.FOLLOWED_EARLY, "has a successor and has not ended", [_job(job), *after]
    if job.delivery != Delivery.CHAIN and _tells(job, Kind.CHAINED):
        told = f"({job.delivery}) wrote a successor when it ended"
        yield Code.CHAINED_ASTRAY, told, [_job(job), *after]
    end = _only(job, Where.END)
    if end and (job.delivery, end.state) == (Delivery.CHAIN, State.FAILED) and not after:
        yield Code.UNFOLLOWED, "failed and nothing follows it", [_place(job, end)]


def _is_linked_to_its_chain(job: Dossier) -> Found:
    before = job.before
    if before is not None and before.id is None:
        yield Code.PREDECESSOR_GONE, "retries a job that is not there", [_job(job)]
        return
    root = before.root_id if before else job.id
    if job.root_id is None or job.root_id != root:
        told = f"has the root {job.root_id}, and its chain begins with {root}"
        others = [f"jobs id={before.id}"] if before else []
        yield Code.ROOT_BROKEN, told, [_job(job), *others]


def _is_held_and_grouped_rightly(job: Dossier) -> Found:
    if not job.params_are_json:
        yield Code.PARAMS_BROKEN, "has params that are no JSON", [_job(job)]
    for held in job.reservations:
        row = f"reservations id={held.id}"
        if held.status == "active" and job.end is not None:
            yield Code.RESERVATION_LEFT, "has ended and still holds its queue", [row, _job(job)]
        if held.queue != job.queue:
            told = f"is of queue {job.queue}, and its reservation holds {held.queue}"
            yield Code.RESERVATION_ELSEWHERE, told, [row, _job(job)]
    if job.is_member and job.group_id is None:
        yield Code.GROUP_GONE, "is a member of a group that is not there", [_job(job)]
    for place in job.places:
        if place.state == State.BLOCKED and not job.is_member:
            yield Code.BLOCKED_ALONE, "is blocked and in no group", [_place(job, place)]


CHECKS: Final[tuple[Check, ...]] = (
    _stands_in_one_place,
    _words_are_known,
    _runs_at_most_once,
    _tokens_count_from_one,
    _runs_are_whole,
    _ends_with_the_run_that_ends_it,
    _end_is_explained,
    _events_tell_the_end,
    _events_are_of_its_runs,
    _counts_are_borne_out,
    _is_followed_as_it_may_be,
    _is_linked_to_its_chain,
    _is_held_and_grouped_rightly,
)
"""Every invariant of one job; what concerns several at once a store finds itself (`strays`)."""


def _only(job: Dossier, where: Where) -> Place | None:
    """Its place, if that is where it stands and the only one."""
    return job.places[0] if len(job.places) == 1 and job.places[0].where is where else None


def _tells(job: Dossier, kind: Kind) -> bool:
    return any(event.kind == kind for event in job.events)


def _last_token(job: Dossier) -> int:
    return max((run.token for run in job.runs), default=0)


def _job(job: Dossier) -> str:
    return f"jobs seq={job.seq}"


def _place(job: Dossier, place: Place) -> str:
    return f"{place.where} job={job.seq}"


def _open(job: Dossier) -> list[str]:
    return [_place(job, place) for place in job.places if place.where is Where.OPEN]


def _run(job: Dossier, run: ClosedRun) -> str:
    return _token(job, run.token)


def _token(job: Dossier, token: int) -> str:
    return f"runs job={job.seq} token={token}"


def _last(job: Dossier) -> list[str]:
    return [_run(job, run) for run in job.runs[-1:]]


def _event(event: Told) -> str:
    return f"events id={event.id}"
