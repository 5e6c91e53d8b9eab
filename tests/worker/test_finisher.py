"""The finisher repeats only what the store did not answer."""

from collections.abc import Sequence

import pytest

from outlast.core.decide import Change, succeed
from outlast.errors import StoreBusy, StoreMoved
from outlast.testing.conformance.factories import new_id
from outlast.worker import finisher


class PartlyBusyStore:
    """Answers only the first half of the changes while `is_busy`."""

    def __init__(self) -> None:
        self.is_busy = True
        self.asked: list[list[Change]] = []

    async def apply(self, changes: Sequence[Change]) -> list[bool]:
        self.asked.append(list(changes))
        if not self.is_busy:
            return [True] * len(changes)
        self.is_busy = False
        half = len(changes) // 2
        raise StoreBusy("busy").with_answers([True] * half + [None] * (len(changes) - half))


async def test_answered_ends_are_passed_on_at_once_and_only_the_others_are_repeated(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(finisher, "pause_after", lambda _: 0.0)
    store, written = PartlyBusyStore(), []

    async def nothing() -> None:
        """No failure is to be told."""

    def on_written(changes: Sequence[Change], answers: Sequence[bool]) -> None:
        assert all(answers)
        written.append((len(store.asked), [change.job_id for change in changes]))

    changes = [succeed(new_id(), 1, "1") for _ in range(4)]
    ends = finisher.Finisher(store, on_written, nothing)  # type: ignore[arg-type]
    for change in changes:
        ends.finish(change)
    await ends.flush()

    ids = [change.job_id for change in changes]
    assert store.asked == [changes, changes[2:]]
    assert written == [(1, ids[:2]), (2, ids[2:])]
    assert (ends.refused, ends.unwritten) == (0, [])


def test_error_with_answers_is_a_copy_of_the_same_kind() -> None:
    error = StoreMoved("moved", to="sqlite:///b")

    told = error.with_answers([True, None])

    assert (type(told), str(told), told.to, told.answers) == (
        StoreMoved,
        "moved",
        "sqlite:///b",
        (True, None),
    )
    assert error.answers == ()
