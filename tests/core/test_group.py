"""What the end of a member means, and what a group tells of itself."""

from datetime import UTC, datetime
from itertools import product
from typing import Any

import pytest

from outlast.core.group import (
    MOST_MEMBERS,
    ClosePolicy,
    Group,
    GroupAction,
    GroupMode,
    GroupState,
    NewGroup,
    OnMemberFailure,
    action_after_member,
    check_group,
)
from outlast.core.state import FINAL, State
from outlast.errors import InvalidGroup

NOW = datetime(2026, 1, 1, tzinfo=UTC)
ID = "00000000-0000-7000-8000-000000000001"
GOOD = {State.SUCCEEDED, State.SKIPPED}
AFTER_A_FAILURE = {
    ("parallel", "stop"): "stop",
    ("parallel", "continue"): "nothing",
    ("parallel", "skip"): "skip",
    ("sequential", "stop"): "stop",
    ("sequential", "continue"): "next",
    ("sequential", "skip"): "skip",
}


def make_group(**over: Any) -> Group:
    plain: dict[str, Any] = {
        "id": ID,
        "seq": 1,
        "name": None,
        "mode": GroupMode.PARALLEL,
        "on_failure": OnMemberFailure.CONTINUE,
        "total": 4,
        "created_at": NOW,
        "sealed_at": NOW,
        "closing": None,
        "reason": None,
        "counts": {},
    }
    return Group(**{**plain, **over})


@pytest.mark.parametrize(
    ("mode", "on_failure", "end"), [*product(GroupMode, OnMemberFailure, sorted(FINAL))]
)
def test_every_end_means_what_the_table_says(mode, on_failure, end):
    good = "next" if mode is GroupMode.SEQUENTIAL else "nothing"
    expected = good if end in GOOD else AFTER_A_FAILURE[mode, on_failure]

    assert action_after_member(mode, on_failure, end) is GroupAction(expected)


STATES: list[tuple[dict[str, Any], GroupState]] = [
    ({"sealed_at": None}, GroupState.FILLING),
    ({"sealed_at": None, "counts": {State.BLOCKED: 4}}, GroupState.FILLING),
    ({"sealed_at": None, "counts": {State.CANCELLED: 4}}, GroupState.FILLING),
    ({"sealed_at": None, "closing": ClosePolicy.STOP}, GroupState.CANCELLED),
    (
        {"sealed_at": None, "closing": ClosePolicy.STOP, "counts": {State.BLOCKED: 1}},
        GroupState.RUNNING,
    ),
    ({"counts": {State.SUCCEEDED: 3, State.QUEUED: 1}}, GroupState.RUNNING),
    ({"counts": {State.FAILED: 3, State.RUNNING: 1}}, GroupState.RUNNING),
    ({"counts": {State.SUCCEEDED: 3, State.SKIPPED: 1}}, GroupState.SUCCEEDED),
    ({"counts": {State.SUCCEEDED: 3, State.FAILED: 1}}, GroupState.FAILED),
    ({"counts": {State.CANCELLED: 3, State.DEAD_LETTER: 1}}, GroupState.FAILED),
    ({"counts": {State.SUCCEEDED: 3, State.CANCELLED: 1}}, GroupState.CANCELLED),
    ({"counts": {State.SUCCEEDED: 2}, "closing": ClosePolicy.STOP}, GroupState.CANCELLED),
    ({"counts": {}}, GroupState.SUCCEEDED),  # all pruned since
]


@pytest.mark.parametrize(("over", "state"), STATES)
def test_state_is_told_from_the_members(over, state):
    group = make_group(**over)

    assert group.state is state
    assert group.is_over == (state not in {GroupState.FILLING, GroupState.RUNNING})


def test_progress_counts_ended_and_pruned_members():
    group = make_group(counts={State.SUCCEEDED: 1, State.FAILED: 1, State.RUNNING: 1})

    assert (group.done, group.progress) == (3, 0.75)


def test_members_that_are_still_to_come_are_not_done():
    group = make_group(sealed_at=None, counts={State.CANCELLED: 1, State.BLOCKED: 1})

    assert (group.done, group.progress) == (1, 0.25)


@pytest.mark.parametrize(
    ("over", "words"),
    [
        ({"id": None}, "id of a group is None"),
        ({"id": "g"}, "id of a group is 'g'"),
        ({"name": ""}, "name of a group is ''"),
        ({"name": "a\0b"}, "NUL"),
        ({"name": 7}, "name of a group is 7"),
        ({"total": 0}, "a group of 0 members"),
        ({"total": MOST_MEMBERS + 1}, "1 to 1,000,000"),
        ({"total": True}, "total of a group is True"),
        ({"total": 1.5}, "total of a group is 1.5"),
    ],
)
def test_group_that_cannot_be_stored_is_named(over, words):
    plain: dict[str, Any] = {"id": ID, "total": 1}

    with pytest.raises(InvalidGroup, match=words):
        check_group(NewGroup(**{**plain, **over}))
