"""What `verify` calls a violation, against what `decide` may choose: it must never refute that."""

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from outlast.core.audit.checks import dangling_violation, violations
from outlast.core.audit.history_checks import CONTINUING, END_OF_EVENT, EXPLAINED_BY, UNRELATED
from outlast.core.audit.model import (
    AuditedEvent,
    ClosedRun,
    DanglingKind,
    DanglingRecord,
    JobAudit,
    Predecessor,
    StateRow,
    StateTable,
)
from outlast.core.audit.violation import DANGLING, REPAIRS, ViolationCode
from outlast.core.delivery import Delivery
from outlast.core.event import EventKind
from outlast.core.ids import JobId, RunId
from outlast.core.state import FINAL, RunStatus, State

from .transition_table import stories

NOW = datetime(2026, 1, 5, tzinfo=UTC)
LATER = datetime(2026, 1, 6, tzinfo=UTC)
ID = JobId("the-job")
ENDS = [story for story in stories() if story["to"] in FINAL]
OTHERS = [story for story in stories() if story["to"] not in FINAL]


def _name(story: dict[str, str]) -> str:
    return "-".join(story.values())


def a_run(token: int = 1, status: str = RunStatus.SUCCEEDED, **over: Any) -> ClosedRun:
    values = {"run_id": RunId(f"run-{token}"), "finished_at": NOW, "has_result": False}
    return ClosedRun(token=token, status=status, **{**values, **over})


def an_end(state: str = State.SUCCEEDED, **over: Any) -> StateRow:
    values = {"token": 1, "failures": 0, "losses": 0, "at": NOW}
    return StateRow(where=StateTable.END, state=state, **{**values, **over})


def a_job(**over: Any) -> JobAudit:
    """One that succeeded in its only run."""
    values = {
        "id": ID, "seq": 1, "delivery": Delivery.LEASE, "queue": "default", "created_at": NOW,
        "params_are_json": True, "places": (an_end(),), "runs": (a_run(),), "events": (),
        "root_id": ID, "before": None, "successors": (),
    }  # fmt: skip
    return JobAudit(**{**values, **over})


def event_of(kind: str, number: int = 1, at: datetime = NOW, token: int = 1) -> AuditedEvent:
    return AuditedEvent(id=number, kind=kind, token=token, at=at)


def codes(job: JobAudit) -> list[ViolationCode]:
    return [violation.code for violation in violations(job)]


def test_every_violation_has_its_repair() -> None:
    assert set(REPAIRS) == set(ViolationCode)
    assert all(REPAIRS.values())


def test_every_dangling_record_has_a_violation() -> None:
    assert set(DANGLING) == set(DanglingKind)
    found = dangling_violation(
        DanglingRecord(kind=DanglingKind.KEY, rows=("keys key=x",), about="x")
    )
    assert (found.code, found.rows, found.job_id) == (
        ViolationCode.DANGLING_KEY,
        ("keys key=x",),
        None,
    )
    assert found.what == "an active key whose job is missing: x"


@pytest.mark.parametrize("story", ENDS, ids=_name)
def test_end_that_decide_may_choose_is_told_and_explained(story: dict[str, str]) -> None:
    if story["run"] != "-":
        assert story["run"] in EXPLAINED_BY[story["to"]]
    if story["kind"] != "-":
        assert END_OF_EVENT.get(story["kind"], story["to"]) == story["to"]
        assert story["kind"] not in CONTINUING | UNRELATED
    else:
        assert story["to"] == State.SUCCEEDED


@pytest.mark.parametrize("story", OTHERS, ids=_name)
def test_what_goes_on_is_not_told_as_an_end(story: dict[str, str]) -> None:
    assert story["kind"] not in END_OF_EVENT


def test_job_that_succeeded_is_sound() -> None:
    assert codes(a_job()) == []


def test_job_that_recovery_ended_later_than_its_run_is_sound() -> None:
    late = a_job(places=(an_end(at=LATER),))

    assert codes(late) == [ViolationCode.END_TIME_MISMATCH]
    assert codes(replace(late, events=(event_of(EventKind.RECOVERED, at=LATER),))) == []


def test_wall_clock_that_was_set_back_refutes_nothing() -> None:
    first, second = a_run(1, RunStatus.LOST, finished_at=LATER), a_run(2)
    job = a_job(
        created_at=LATER,
        places=(an_end(token=2, failures=1, losses=1),),
        runs=(first, second),
        events=(event_of(EventKind.REQUEUED, at=LATER),),
    )

    assert codes(job) == []


def test_failure_that_was_given_up_later_is_told_by_both_events() -> None:
    chained, given_up = (
        event_of(EventKind.CHAINED, 1),
        event_of(EventKind.GIVEN_UP, 2, LATER),
    )
    job = a_job(
        delivery=Delivery.LINKED,
        places=(an_end(State.DEAD_LETTER, failures=1),),
        runs=(a_run(status=RunStatus.FAILED),),
        events=(chained, given_up),
        successors=(JobId("the-next-job"),),
    )

    assert codes(job) == []
    assert codes(replace(job, events=(chained,))) == [ViolationCode.EVENT_CONTRADICTS]
    assert codes(replace(job, events=(given_up,))) == [ViolationCode.END_EVENT_MISSING]


def test_job_that_recovery_put_back_after_its_end_was_lost_is_sound() -> None:
    """What an event tells counts until a later one tells that it went on."""
    place = StateRow(where=StateTable.WAITING, state=State.QUEUED, token=1, failures=1, losses=1)
    job = a_job(
        places=(place,),
        runs=(a_run(status=RunStatus.LOST),),
        events=(event_of(EventKind.DEAD_LETTER, 1), event_of(EventKind.REQUEUED, 2)),
    )

    assert codes(job) == []
    assert codes(replace(job, events=job.events[:1])) == [ViolationCode.EVENT_CONTRADICTS]


def test_event_of_a_kind_that_is_not_known_here_may_tell_of_an_end() -> None:
    """A newer version may have written it: what is not understood refutes nothing."""
    job = a_job(places=(an_end(State.CANCELLED, token=0),), runs=(), events=())

    assert codes(job) == [ViolationCode.END_EVENT_MISSING]
    with_it, later = (event_of("forgotten", at=at, token=0) for at in (NOW, LATER))
    assert codes(replace(job, events=(with_it,))) == []
    assert codes(replace(job, events=(later,))) == [ViolationCode.END_EVENT_MISSING]


@pytest.mark.parametrize(
    ("chained", "failures", "expected"),
    [(True, 3, []), (True, 0, [ViolationCode.COUNTS_MISMATCH]), (False, 0, []),
     (False, 3, [ViolationCode.COUNTS_MISMATCH])],
)  # fmt: skip
def test_link_goes_on_counting_and_a_retry_by_hand_begins_anew(
    chained: bool, failures: int, expected: list[ViolationCode]
) -> None:
    root = JobId("the-root")
    before = Predecessor(id=root, root_id=root, failures=3, losses=0, chained=chained)

    job = a_job(before=before, root_id=root, places=(an_end(failures=failures),))

    assert codes(job) == expected


def test_job_whose_predecessor_is_gone_is_not_said_to_count_wrongly() -> None:
    job = a_job(before=Predecessor(id=None), root_id=None, places=(an_end(failures=3),))

    assert codes(job) == [ViolationCode.MISSING_PREDECESSOR]


def test_token_beyond_all_reason_costs_no_time() -> None:
    job = a_job(runs=(a_run(10**15),), places=(an_end(token=10**15),))

    assert codes(job) == [ViolationCode.RUN_MISSING]


def test_violation_names_its_job_and_no_params() -> None:
    [found] = violations(a_job(places=()))

    assert (found.job_id, found.rows) == (ID, ("jobs seq=1",))
    assert found.what == "job the-job has no state row: it neither waits, runs nor has ended"
    assert "`outlast verify --repair`" in found.repair
