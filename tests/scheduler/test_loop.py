"""How the trigger loop sleeps: long when nothing is near, never past the time to get ready."""

from collections import Counter
from datetime import timedelta

import pytest

from outlast.scheduler.loop import (
    MAX_SLEEP_POLLS,
    MIN_PREPARE_TIME_S,
    PREPARE_AHEAD,
    WAKE_MARGIN_S,
    _step,
)
from outlast.scheduler.trigger import TriggerResult
from outlast.testing.clock import START

POLL = 0.5


class Foreseen:
    """A trigger whose next moment is that far away."""

    def __init__(self, left):
        self.left = left
        self.prepared = 0

    async def run_once(self):
        at = None if self.left is None else START + timedelta(seconds=self.left)
        return TriggerResult(outcomes=Counter(), now=START, next_trigger_at=at)

    async def prepare(self, moment, ahead):
        self.prepared += 1


@pytest.mark.parametrize("left", [None, 3600.0])
async def test_rests_for_long_when_nothing_is_near(left):
    assert await _step(Foreseen(left), POLL) == MAX_SLEEP_POLLS * POLL


async def test_wakes_in_time_to_make_ready_what_is_due():
    near = PREPARE_AHEAD.total_seconds()

    slept = await _step(Foreseen(near + 3), POLL)

    assert slept == pytest.approx(3 + WAKE_MARGIN_S)
    foreseen = Foreseen(near + 3 - slept)
    assert await _step(foreseen, POLL) == pytest.approx(near - WAKE_MARGIN_S, abs=0.5)
    assert foreseen.prepared == 1


async def test_makes_nothing_ready_at_the_last_moment():
    foreseen = Foreseen(MIN_PREPARE_TIME_S / 2)

    assert await _step(foreseen, POLL) <= MIN_PREPARE_TIME_S / 2
    assert foreseen.prepared == 0
