"""The invariants of one job across its records, checked on its audit."""

from typing import Final

from outlast.core.audit import history_checks
from outlast.core.audit.history_checks import Check, Found
from outlast.core.audit.model import DanglingRecord, JobAudit, StateTable
from outlast.core.audit.violation import DANGLING, Violation, ViolationCode
from outlast.core.delivery import Delivery
from outlast.core.event import EventKind
from outlast.core.reservation import ReservationStatus
from outlast.core.state import State


def violations(job: JobAudit) -> list[Violation]:
    """Return every invariant that this job violates; empty for a sound store."""
    found = (hit for check in CHECKS for hit in check(job))
    return [
        Violation(code=code, what=f"job {job.id} {what}", rows=tuple(rows), job_id=job.id)
        for code, what, rows in found
    ]


def dangling_violation(record: DanglingRecord) -> Violation:
    """Return the violation that a dangling record is."""
    code, what = DANGLING[record.kind]
    about = f"{what}: {record.about}" if record.about else what
    return Violation(code=code, what=about, rows=record.rows, job_id=record.job_id)


def _check_successors(job: JobAudit) -> Found:
    after = [f"jobs id={job_id}" for job_id in job.successors]
    if len(after) > 1:
        yield ViolationCode.TWO_SUCCESSORS, f"has {len(after)} successors", [job.row, *after]
    if after and job.end is None:
        yield ViolationCode.EARLY_SUCCESSOR, "has a successor and has not ended", [job.row, *after]
    if job.delivery != Delivery.LINKED and job.tells(EventKind.CHAINED):
        what = f"({job.delivery}) wrote a successor when it ended"
        yield ViolationCode.UNEXPECTED_SUCCESSOR, what, [job.row, *after]
    end = job.only(StateTable.END)
    if end and (job.delivery, end.state) == (Delivery.LINKED, State.FAILED) and not after:
        yield ViolationCode.MISSING_SUCCESSOR, "failed and has no successor", [job.place_row(end)]


def _check_chain(job: JobAudit) -> Found:
    before = job.before
    if before is not None and before.id is None:
        yield ViolationCode.MISSING_PREDECESSOR, "retries a job that is missing", [job.row]
        return
    root = before.root_id if before else job.id
    if job.root_id is None or job.root_id != root:
        what = f"has the root {job.root_id}, but its chain starts with {root}"
        others = [f"jobs id={before.id}"] if before else []
        yield ViolationCode.ROOT_MISMATCH, what, [job.row, *others]


def _check_params_reservations_group(job: JobAudit) -> Found:
    if not job.params_are_json:
        yield ViolationCode.PARAMS_NOT_JSON, "has params that are not JSON", [job.row]
    if job.missing_bodies:
        yield ViolationCode.BODY_MISSING, "lacks a long text", [job.row, *job.missing_bodies]
    for held in job.reservations:
        reserved = f"reservations id={held.id}"
        if held.status == ReservationStatus.ACTIVE and job.end is not None:
            yield (
                ViolationCode.RESERVATION_OF_ENDED_JOB,
                "has ended and still reserves its queue",
                [reserved, job.row],
            )
        if held.queue != job.queue:
            what = f"is in queue {job.queue}, but its reservation is of {held.queue}"
            yield ViolationCode.RESERVATION_OF_OTHER_QUEUE, what, [reserved, job.row]
    if job.active_key is not None and _is_live(job) and job.key_holder != job.root_id:
        what = f"has not ended and does not hold its active key {job.active_key!r}"
        yield ViolationCode.KEY_NOT_HELD, what, [job.row]
    if job.is_member and job.group_id is None:
        yield ViolationCode.MISSING_GROUP, "is a member of a group that is missing", [job.row]
    for row in job.places:
        if row.state == State.BLOCKED and not job.is_member:
            yield (
                ViolationCode.BLOCKED_WITHOUT_GROUP,
                "is blocked and in no group",
                [job.place_row(row)],
            )


def _check_labels(job: JobAudit) -> Found:
    if not job.metadata_is_sound:
        what = "has headers, tags or meta that cannot be read"
        yield ViolationCode.METADATA_INVALID, what, [job.row]
    missing, surplus = job.missing_labels, job.surplus_labels
    if missing or surplus:
        what = f"lacks {len(missing)} label rows and has {len(surplus)} surplus ones"
        rows = [f"labels label={label} job={job.seq}" for label in (*missing, *surplus)]
        yield ViolationCode.LABEL_MISMATCH, what, [job.row, *rows]


def _is_live(job: JobAudit) -> bool:
    return bool(job.places) and job.end is None


CHECKS: Final[tuple[Check, ...]] = (
    *history_checks.CHECKS,
    _check_successors,
    _check_chain,
    _check_params_reservations_group,
    _check_labels,
)
"""Every invariant of one job. A store finds violations across jobs itself (`dangling_records`)."""
