"""The invariants of a store's own history, held against what it says of each job."""

from typing import Final

from outlast.core.audit import history_checks
from outlast.core.audit.history_checks import Check, Found
from outlast.core.audit.model import DanglingRecord, JobAudit, StateTable
from outlast.core.audit.violation import DANGLING, Violation, ViolationCode
from outlast.core.delivery import Delivery
from outlast.core.event import EventKind
from outlast.core.reservation import ReservationStatus
from outlast.core.state import State


def violations(dossier: JobAudit) -> list[Violation]:
    """Every invariant that this job breaks; none in a store that nobody has broken."""
    found = (hit for check in CHECKS for hit in check(dossier))
    return [
        Violation(code=code, what=f"job {dossier.id} {what}", rows=tuple(rows), job_id=dossier.id)
        for code, what, rows in found
    ]


def dangling_violation(stray: DanglingRecord) -> Violation:
    """What it means that this is there."""
    code, what = DANGLING[stray.kind]
    about = f"{what}: {stray.about}" if stray.about else what
    return Violation(code=code, what=about, rows=stray.rows, job_id=stray.job_id)


def _is_followed_as_it_may_be(job: JobAudit) -> Found:
    after = [f"jobs id={job_id}" for job_id in job.successors]
    if len(after) > 1:
        yield ViolationCode.FOLLOWED_TWICE, f"has {len(after)} successors", [job.row, *after]
    if after and job.end is None:
        yield ViolationCode.FOLLOWED_EARLY, "has a successor and has not ended", [job.row, *after]
    if job.delivery != Delivery.LINKED and job.tells(EventKind.CHAINED):
        told = f"({job.delivery}) wrote a successor when it ended"
        yield ViolationCode.CHAINED_ASTRAY, told, [job.row, *after]
    end = job.only(StateTable.END)
    if end and (job.delivery, end.state) == (Delivery.LINKED, State.FAILED) and not after:
        yield ViolationCode.UNFOLLOWED, "failed and nothing follows it", [job.place_row(end)]


def _is_linked_to_its_chain(job: JobAudit) -> Found:
    before = job.before
    if before is not None and before.id is None:
        yield ViolationCode.PREDECESSOR_GONE, "retries a job that is not there", [job.row]
        return
    root = before.root_id if before else job.id
    if job.root_id is None or job.root_id != root:
        told = f"has the root {job.root_id}, and its chain begins with {root}"
        others = [f"jobs id={before.id}"] if before else []
        yield ViolationCode.ROOT_BROKEN, told, [job.row, *others]


def _is_held_and_grouped_rightly(job: JobAudit) -> Found:
    if not job.params_are_json:
        yield ViolationCode.PARAMS_BROKEN, "has params that are no JSON", [job.row]
    for held in job.reservations:
        row = f"reservations id={held.id}"
        if held.status == ReservationStatus.ACTIVE and job.end is not None:
            yield (
                ViolationCode.RESERVATION_LEFT,
                "has ended and still holds its queue",
                [row, job.row],
            )
        if held.queue != job.queue:
            told = f"is of queue {job.queue}, and its reservation holds {held.queue}"
            yield ViolationCode.RESERVATION_ELSEWHERE, told, [row, job.row]
    if job.is_member and job.group_id is None:
        yield ViolationCode.GROUP_GONE, "is a member of a group that is not there", [job.row]
    for place in job.places:
        if place.state == State.BLOCKED and not job.is_member:
            yield ViolationCode.BLOCKED_ALONE, "is blocked and in no group", [job.place_row(place)]


CHECKS: Final[tuple[Check, ...]] = (
    *history_checks.CHECKS,
    _is_followed_as_it_may_be,
    _is_linked_to_its_chain,
    _is_held_and_grouped_rightly,
)
"""Every invariant of one job; what concerns several at once a store finds itself (`strays`)."""
