"""Violations between jobs and other rows, planted by hand: chains, keys, reservations, groups."""

from collections.abc import Callable
from typing import Final

from outlast.core.audit.violation import ViolationCode

from .violations import (
    CLOSED,
    DONE,
    LINK,
    NEXT,
    NOBODY,
    ONCE,
    QUEUED,
    RETRIED,
    STRANGER,
    PlantedViolation,
    RowEditor,
    execute,
)


def _followed_twice(v: RowEditor) -> None:
    v.drop("outlast_jobs_retry_of")
    v.second_job(NEXT)


def _unfollowed(v: RowEditor) -> None:
    v.run("DELETE FROM outlast_waiting WHERE job = ?", NEXT)
    v.run("DELETE FROM outlast_jobs WHERE seq = ?", NEXT)


def _predecessor_gone(v: RowEditor) -> None:
    for table in ("runs", "ends", "events"):
        v.run(f"DELETE FROM outlast_{table} WHERE job = ?", LINK)  # noqa: S608 - ours
    v.run("DELETE FROM outlast_jobs WHERE seq = ?", LINK)


def _reserved_twice(v: RowEditor) -> None:
    v.drop("outlast_reservations_active")
    v.reserve(1, v.id(QUEUED), "queued")
    v.reserve(2, v.id(QUEUED), "queued")


def _once_overlaps(v: RowEditor) -> None:
    v.drop("outlast_open_name")
    v.copy("outlast_jobs", "seq", ONCE, seq=STRANGER, id=NOBODY)
    v.copy("outlast_open_runs", "job", ONCE, job=STRANGER, run_id=NOBODY)


def _key(scope: str, seq: int | None) -> Callable[[RowEditor], None]:
    def do(v: RowEditor) -> None:
        job_id = NOBODY if seq is None else v.id(seq)
        v.insert("outlast_keys", scope=scope, key="x", bucket="", job_id=job_id)

    return do


_C = ViolationCode
LINK_PLANTS: Final = (
    PlantedViolation(
        _C.TWO_SUCCESSORS,
        ("jobs seq=4", "jobs id={5}", f"jobs id={NOBODY}"),
        LINK,
        _followed_twice,
    ),
    PlantedViolation(
        _C.EARLY_SUCCESSOR,
        ("jobs seq=3", f"jobs id={NOBODY}"),
        3,
        lambda v: v.second_job(QUEUED, retry_of=QUEUED, root=QUEUED),
    ),
    PlantedViolation(_C.MISSING_SUCCESSOR, ("ends job=4",), LINK, _unfollowed),
    PlantedViolation(
        _C.UNEXPECTED_SUCCESSOR, ("jobs seq=10",), CLOSED, lambda v: v.event(CLOSED, "chained", 1)
    ),
    PlantedViolation(_C.MISSING_PREDECESSOR, ("jobs seq=5",), NEXT, _predecessor_gone),
    PlantedViolation(
        _C.ROOT_MISMATCH,
        ("jobs seq=5", "jobs id={4}"),
        NEXT,
        execute("UPDATE outlast_jobs SET root=3 WHERE seq=5"),
    ),
    PlantedViolation(
        _C.ROOT_MISMATCH,
        ("jobs seq=5", "jobs id={4}"),
        NEXT,
        execute("UPDATE outlast_jobs SET root=77 WHERE seq=5"),
    ),
    PlantedViolation(
        _C.PARAMS_NOT_JSON,
        ("jobs seq=3",),
        3,
        execute("UPDATE outlast_jobs SET params='{' WHERE seq=3"),
    ),
    PlantedViolation(
        _C.RESERVATION_OF_ENDED_JOB,
        (f"reservations id={1:036}", "jobs seq=1"),
        1,
        lambda v: v.reserve(1, v.id(DONE), "default"),
    ),
    PlantedViolation(
        _C.RESERVATION_OF_OTHER_QUEUE,
        (f"reservations id={1:036}", "jobs seq=3"),
        3,
        lambda v: v.reserve(1, v.id(QUEUED), "another", "released"),
    ),
    PlantedViolation(
        _C.BLOCKED_WITHOUT_GROUP,
        ("waiting job=3",),
        3,
        execute("UPDATE outlast_waiting SET state='blocked' WHERE job=3"),
    ),
    PlantedViolation(
        _C.MISSING_GROUP,
        ("jobs seq=3",),
        3,
        execute(
            "UPDATE outlast_jobs SET member_of=77 WHERE seq=3",
            "UPDATE outlast_waiting SET member_of=77 WHERE job=3",
        ),
    ),
    PlantedViolation(
        _C.ORPHAN_RUN,
        ("runs job=99 token=1",),
        None,
        lambda v: v.copy("outlast_runs", "job", DONE, job=STRANGER, run_id=NOBODY),
    ),
    PlantedViolation(
        _C.DANGLING_EVENT, ("events id=6",), None, lambda v: v.event(STRANGER, "cancelled")
    ),
    PlantedViolation(
        _C.DANGLING_STATE_ROW,
        ("waiting job=99",),
        None,
        lambda v: v.copy("outlast_waiting", "job", QUEUED, job=STRANGER),
    ),
    PlantedViolation(
        _C.DANGLING_STATE_ROW,
        ("open_runs job=99",),
        None,
        lambda v: v.copy("outlast_open_runs", "job", RETRIED, job=STRANGER, run_id=NOBODY),
    ),
    PlantedViolation(
        _C.DANGLING_STATE_ROW,
        ("ends job=99",),
        None,
        lambda v: v.copy("outlast_ends", "job", DONE, job=STRANGER),
    ),
    PlantedViolation(
        _C.DANGLING_LABEL,
        ("labels label=tag:x job=99",),
        None,
        lambda v: v.insert("outlast_labels", label="tag:x", job=STRANGER),
    ),
    PlantedViolation(
        _C.LABEL_MISMATCH,
        ("jobs seq=3", "labels label=tag:x job=3"),
        QUEUED,
        lambda v: v.insert("outlast_labels", label="tag:x", job=QUEUED),
    ),
    PlantedViolation(
        _C.LABEL_MISMATCH,
        ("jobs seq=3", "labels label=meta.n:1.5 job=3", "labels label=tag:x job=3"),
        QUEUED,
        execute(
            """UPDATE outlast_jobs SET metadata='{"tags":["x"],"meta":{"n":1.5}}' WHERE seq=3"""
        ),
    ),
    PlantedViolation(
        _C.METADATA_INVALID,
        ("jobs seq=3",),
        QUEUED,
        execute("""UPDATE outlast_jobs SET metadata='{"tags":"x"}' WHERE seq=3"""),
    ),
    PlantedViolation(_C.DANGLING_KEY, ("keys scope=active key=x",), None, _key("active", None)),
    PlantedViolation(
        _C.KEY_NOT_HELD,
        ("jobs seq=3",),
        3,
        execute("UPDATE outlast_jobs SET active_key='x' WHERE seq=3"),
    ),
    PlantedViolation(
        _C.KEY_OF_ENDED_CHAIN, ("keys scope=active key=x",), DONE, _key("active", DONE)
    ),
    PlantedViolation(
        _C.KEY_OF_NON_ROOT, ("keys scope=key key=x bucket=",), NEXT, _key("key", NEXT)
    ),
    PlantedViolation(
        _C.KEY_OF_NON_ROOT,
        ("slots series=s slot_at=1",),
        NEXT,
        lambda v: v.insert(
            "outlast_slots",
            series="s",
            slot_at=1,
            outcome="manual",
            planned=1,
            actual=1,
            job_id=v.id(NEXT),
        ),
    ),
    PlantedViolation(
        _C.SLOT_MISMATCH,
        ("jobs seq=3",),
        QUEUED,
        lambda v: v.run("UPDATE outlast_jobs SET slot_at = 1 WHERE seq = ?", QUEUED),
    ),
    PlantedViolation(
        _C.DANGLING_RESERVATION,
        (f"reservations id={1:036}",),
        None,
        lambda v: v.reserve(1, NOBODY, "queued"),
    ),
    PlantedViolation(
        _C.RESERVED_TWICE,
        (f"reservations id={1:036}", f"reservations id={2:036}"),
        None,
        _reserved_twice,
    ),
    PlantedViolation(
        _C.ONCE_OVERLAP, ("open_runs job=6", "open_runs job=99"), None, _once_overlaps
    ),
    PlantedViolation(
        _C.GROUP_OUT_OF_TURN,
        ("waiting job=3", "waiting job=9", f"groups id={7:036}"),
        None,
        lambda v: v.group("sequential", queued="queued", other="scheduled"),
    ),
    PlantedViolation(
        _C.GROUP_OUT_OF_TURN,
        ("waiting job=9", f"groups id={7:036}"),
        None,
        lambda v: v.group("sequential", queued="blocked", other="queued"),
    ),
    PlantedViolation(
        _C.STALLED_GROUP,
        (f"groups id={7:036}",),
        None,
        lambda v: v.group("sequential", queued="blocked", other="blocked"),
    ),
    PlantedViolation(
        _C.STALLED_GROUP,
        (f"groups id={7:036}",),
        None,
        lambda v: v.group("parallel", queued="queued", other="blocked"),
    ),
)
