"""Violations within one job, planted by hand: its state, its runs, its end, its events."""

from typing import Final

from outlast.core.audit.violation import ViolationCode

from .violations import (
    DEAD,
    DROPPED,
    LINK,
    NEXT,
    NOBODY,
    ONCE,
    QUEUED,
    RETRIED,
    PlantedViolation,
    RowEditor,
    execute,
)


def _ran_twice(v: RowEditor) -> None:
    v.copy("outlast_runs", "job", LINK, token=2, run_id=NOBODY)
    v.run("UPDATE outlast_ends SET token = 2, failures = 2 WHERE job = ?", LINK)
    v.run("UPDATE outlast_waiting SET failures = 2 WHERE job = ?", NEXT)


def _waits_again(v: RowEditor) -> None:
    v.copy("outlast_runs", "job", LINK, job=NEXT, run_id=NOBODY, status="released")
    v.run("UPDATE outlast_waiting SET token = 1 WHERE job = ?", NEXT)


_C = ViolationCode
RUN_PLANTS: Final = (
    PlantedViolation(
        _C.DETACHED, ("jobs seq=3",), 3, execute("DELETE FROM outlast_waiting WHERE job=3")
    ),
    PlantedViolation(
        _C.TWO_STATE_ROWS,
        ("waiting job=3", "ends job=3"),
        3,
        lambda v: v.end(QUEUED, "cancelled", like=DROPPED),
    ),
    PlantedViolation(
        _C.TWO_STATE_ROWS,
        ("open_runs job=2", "ends job=2"),
        2,
        lambda v: v.copy(
            "outlast_ends", "job", DEAD, job=RETRIED, queue="retried", token=1, failures=1
        ),
    ),
    PlantedViolation(
        _C.STATE_ROW_MISMATCH,
        ("jobs seq=3", "waiting job=3"),
        3,
        execute("UPDATE outlast_waiting SET queue='elsewhere' WHERE job=3"),
    ),
    PlantedViolation(
        _C.STATE_ROW_MISMATCH,
        ("jobs seq=6", "open_runs job=6"),
        6,
        execute("UPDATE outlast_open_runs SET name='another' WHERE job=6"),
    ),
    PlantedViolation(
        _C.STATE_ROW_MISMATCH,
        ("jobs seq=1", "ends job=1"),
        1,
        execute("UPDATE outlast_ends SET queue='elsewhere' WHERE job=1"),
    ),
    PlantedViolation(
        _C.STATE_ROW_MISMATCH,
        ("jobs seq=3", "waiting job=3"),
        3,
        execute("UPDATE outlast_waiting SET member_of=77 WHERE job=3"),
    ),
    PlantedViolation(
        _C.UNKNOWN_STATE,
        ("waiting job=3",),
        3,
        execute("UPDATE outlast_waiting SET state='dozing' WHERE job=3"),
    ),
    PlantedViolation(
        _C.UNKNOWN_STATE,
        ("runs job=2 token=1",),
        2,
        execute("UPDATE outlast_runs SET status='odd' WHERE job=2"),
        frozenset({_C.COUNTS_MISMATCH}),
    ),
    PlantedViolation(
        _C.UNKNOWN_STATE,
        ("ends job=1",),
        1,
        execute("UPDATE outlast_ends SET state='over' WHERE job=1"),
        frozenset({_C.END_UNEXPLAINED, _C.END_EVENT_MISSING}),
    ),
    PlantedViolation(_C.WAITS_AGAIN, ("waiting job=5",), NEXT, _waits_again),
    PlantedViolation(_C.RAN_TWICE, ("runs job=4 token=1", "runs job=4 token=2"), LINK, _ran_twice),
    PlantedViolation(
        _C.RAN_TWICE,
        ("runs job=6 token=1", "open_runs job=6"),
        ONCE,
        lambda v: (
            v.copy("outlast_runs", "job", LINK, job=ONCE, run_id=NOBODY, status="released"),
            v.run("UPDATE outlast_open_runs SET token = 2 WHERE job = ?", ONCE),
        )[0],
    ),
    PlantedViolation(
        _C.LOG_OF_NO_RUN,
        ("logs job=1 token=9",),
        1,
        lambda v: v.insert("outlast_logs", job=1, token=9, first=1, lines=1, text="x"),
    ),
    PlantedViolation(
        _C.RUN_MISSING,
        ("runs job=1 token=3",),
        1,
        execute(
            "UPDATE outlast_runs SET token=3 WHERE job=1",
            "UPDATE outlast_ends SET token=3 WHERE job=1",
        ),
    ),
    PlantedViolation(
        _C.TOKEN_MISMATCH,
        ("ends job=1", "runs job=1 token=1"),
        1,
        execute("UPDATE outlast_ends SET token=5 WHERE job=1"),
    ),
    PlantedViolation(
        _C.TOKEN_MISMATCH,
        ("open_runs job=2",),
        2,
        execute("DELETE FROM outlast_runs WHERE job=2"),
        frozenset({_C.COUNTS_MISMATCH}),
    ),
    PlantedViolation(
        _C.OPEN_NOT_LAST,
        ("open_runs job=2", "runs job=2 token=1"),
        2,
        execute("UPDATE outlast_open_runs SET token=1 WHERE job=2"),
    ),
    PlantedViolation(
        _C.RUN_WITHOUT_END,
        ("runs job=4 token=1",),
        LINK,
        execute("UPDATE outlast_runs SET finished_at='never' WHERE job=4"),
    ),
    PlantedViolation(
        _C.UNEXPECTED_RESULT,
        ("runs job=4 token=1",),
        LINK,
        execute("UPDATE outlast_runs SET result='1' WHERE job=4"),
    ),
    PlantedViolation(
        _C.UNKNOWN_HOLDER,
        ("open_runs job=2",),
        2,
        execute("UPDATE outlast_open_runs SET worker=999 WHERE job=2"),
    ),
    PlantedViolation(
        _C.UNKNOWN_HOLDER,
        ("runs job=1 token=1",),
        1,
        execute("UPDATE outlast_runs SET worker=999 WHERE job=1"),
    ),
    PlantedViolation(
        _C.CONTINUED_AFTER_END,
        ("runs job=2 token=1", "open_runs job=2"),
        2,
        execute(
            "UPDATE outlast_runs SET status='succeeded' WHERE job=2",
            "UPDATE outlast_open_runs SET failures=0 WHERE job=2",
        ),
    ),
    PlantedViolation(
        _C.END_UNEXPLAINED,
        ("ends job=1", "runs job=1 token=1"),
        1,
        execute("UPDATE outlast_runs SET status='released', result=NULL WHERE job=1"),
    ),
    PlantedViolation(
        _C.END_UNEXPLAINED,
        ("ends job=8",),
        DROPPED,
        execute(
            "UPDATE outlast_ends SET state='succeeded' WHERE job=8",
            "DELETE FROM outlast_events WHERE job=8",
        ),
    ),
    PlantedViolation(
        _C.END_TIME_MISMATCH,
        ("ends job=1", "runs job=1 token=1"),
        1,
        execute("UPDATE outlast_ends SET at=at+1 WHERE job=1"),
    ),
    PlantedViolation(
        _C.END_EVENT_MISSING,
        ("ends job=7",),
        DEAD,
        execute("DELETE FROM outlast_events WHERE job=7"),
    ),
    PlantedViolation(
        _C.END_EVENT_MISSING,
        ("ends job=8",),
        DROPPED,
        execute("UPDATE outlast_ends SET at=1 WHERE job=8"),
    ),
    PlantedViolation(
        _C.EVENT_CONTRADICTS,
        ("ends job=8", "events id=4"),
        DROPPED,
        execute("UPDATE outlast_ends SET state='skipped' WHERE job=8"),
    ),
    PlantedViolation(
        _C.EVENT_CONTRADICTS,
        ("waiting job=3", "events id=6"),
        3,
        lambda v: v.event(QUEUED, "cancelled"),
    ),
    PlantedViolation(
        _C.EVENT_OF_NO_RUN, ("events id=6",), 3, lambda v: v.event(QUEUED, "cancel_requested", 4)
    ),
    PlantedViolation(
        _C.COUNTS_MISMATCH,
        ("waiting job=3",),
        3,
        execute("UPDATE outlast_waiting SET failures=3 WHERE job=3"),
    ),
    PlantedViolation(
        _C.COUNTS_MISMATCH,
        ("waiting job=5",),
        NEXT,
        execute("UPDATE outlast_waiting SET failures=0 WHERE job=5"),
    ),
)
