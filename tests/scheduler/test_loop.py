"""How the trigger loop sleeps: long when nothing is near, never past the time to get ready."""

import asyncio
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

    def __init__(self, left, takes=lambda: None):
        self.left = left
        self.takes = takes
        self.prepared = 0

    async def run_once(self):
        at = None if self.left is None else START + timedelta(seconds=self.left)
        return TriggerResult(outcomes=Counter(), now=START, next_trigger_at=at)

    async def prepare(self, moment, ahead):
        self.prepared += 1
        self.takes()


class Time:
    """What the loop takes for the time; it stands still unless a test lets some pass."""

    def __init__(self, began):
        self.now = began

    def pass_by(self, seconds):
        self.now += seconds


@pytest.fixture(autouse=True)
async def time(monkeypatch):
    loop = asyncio.get_running_loop()
    time = Time(loop.time())
    monkeypatch.setattr(loop, "time", lambda: time.now)
    yield time
    monkeypatch.undo()


@pytest.mark.parametrize("left", [None, 3600.0])
async def test_rests_for_long_when_nothing_is_near(left):
    assert await _step(Foreseen(left), POLL) == MAX_SLEEP_POLLS * POLL


async def test_wakes_in_time_to_make_ready_what_is_due():
    near = PREPARE_AHEAD.total_seconds()

    slept = await _step(Foreseen(near + 3), POLL)

    assert slept == pytest.approx(3 + WAKE_MARGIN_S)
    foreseen = Foreseen(near + 3 - slept)
    assert await _step(foreseen, POLL) == pytest.approx(
        min(MAX_SLEEP_POLLS * POLL, near - WAKE_MARGIN_S)
    )
    assert foreseen.prepared == 1


async def test_does_not_sleep_for_the_time_that_making_ready_took(time):
    left = MAX_SLEEP_POLLS * POLL / 2
    foreseen = Foreseen(left, takes=lambda: time.pass_by(left / 4))

    assert await _step(foreseen, POLL) == pytest.approx(left * 3 / 4)
    assert foreseen.prepared == 1


async def test_makes_nothing_ready_at_the_last_moment():
    foreseen = Foreseen(MIN_PREPARE_TIME_S / 2)

    assert await _step(foreseen, POLL) <= MIN_PREPARE_TIME_S / 2
    assert foreseen.prepared == 0
