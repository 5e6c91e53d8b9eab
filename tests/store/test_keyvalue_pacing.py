"""Requests to a server that throttles: few tries, all slower, and soon as fast as before."""

import pytest

from outlast.errors import StoreBusy, StoreUnavailable
from outlast.store.keyvalue import pacing
from outlast.store.keyvalue.pacing import (
    BUSY_OR_UNAVAILABLE,
    FIRST_DELAY_S,
    HALF_LIFE_S,
    MAX_DELAY_S,
    MAX_TRIES,
    RequestPace,
)
from outlast.store.keyvalue.store import KeyValueStore
from outlast.testing.clock import FakeClock
from outlast.testing.conformance.factories import make_job
from outlast.testing.stores import ids_for_test
from support.engines.faulty import Fault, FaultyEngine, every
from support.engines.memory import MemoryEngine

LONGEST = 1.0
"""Every pause as long as it can be."""


class Server:
    """Raises its error while there is one; sleeping moves the clock."""

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error
        self.asked = 0
        self.now = 100.0
        self.slept: list[float] = []
        self.pace = RequestPace(
            draw=lambda: LONGEST, monotonic=lambda: self.now, sleep=self.sleep, block=self.block
        )

    async def ask(self) -> str:
        return self.ask_blocking()

    def ask_blocking(self) -> str:
        self.asked += 1
        if self.error is not None:
            raise self.error
        return "answer"

    async def sleep(self, seconds: float) -> None:
        self.block(seconds)

    def block(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds


async def test_throttled_request_is_sent_six_times_with_growing_pauses() -> None:
    server = Server(StoreBusy("too many"))

    with pytest.raises(StoreBusy, match="too many"):
        await server.pace.repeat(server.ask)

    assert server.asked == MAX_TRIES == 6


async def test_server_error_is_repeated_only_where_it_is_asked_for() -> None:
    server = Server(StoreUnavailable("500"))

    with pytest.raises(StoreUnavailable):
        await server.pace.repeat(server.ask)
    with pytest.raises(StoreUnavailable):
        await server.pace.repeat(server.ask, on=BUSY_OR_UNAVAILABLE)

    assert server.asked == 1 + MAX_TRIES
    assert server.pace.delay == 0


def test_caller_without_a_loop_gets_the_same_tries() -> None:
    server = Server(StoreBusy("too many"))

    with pytest.raises(StoreBusy):
        server.pace.repeat_blocking(server.ask_blocking)

    assert (server.asked, len(server.slept)) == (MAX_TRIES, MAX_TRIES - 1)


async def test_all_requests_wait_while_the_server_throttles_and_none_after_it_has_stopped() -> None:
    server = Server()
    server.pace.throttled()

    await server.pace.repeat(server.ask)
    server.now += 20 * HALF_LIFE_S
    await server.pace.repeat(server.ask)

    assert server.slept == [2 * FIRST_DELAY_S * LONGEST]
    assert server.pace.delay == 0


def test_delay_doubles_up_to_its_maximum_and_once_for_a_burst() -> None:
    server, delays = Server(), []
    for _ in range(8):
        for _ in range(16):
            server.pace.throttled()
        delays.append(server.pace.delay)
        server.now += server.pace.delay

    assert delays == sorted(delays)
    assert delays[0] == FIRST_DELAY_S
    assert FIRST_DELAY_S < delays[1] <= 2 * FIRST_DELAY_S
    assert delays[-1] <= MAX_DELAY_S


def test_pauses_are_bounded_however_often_a_request_was_sent() -> None:
    server = Server()

    for number in (0, 1, 10, 10_000):
        assert 0 < server.pace._pause_after(number) <= pacing.MAX_PAUSE_S


@pytest.mark.parametrize("fault", [Fault.THROTTLED, Fault.SERVER_ERROR])
async def test_unit_of_work_does_not_repeat_what_the_engine_gave_up(fault: Fault) -> None:
    clock = FakeClock()
    engine = FaultyEngine(MemoryEngine())
    store = KeyValueStore(engine, clock=clock, ids=ids_for_test(clock))
    await store.open()
    await store.add([make_job()])
    engine.choose = every(1, fault, part="job")

    with pytest.raises((StoreBusy, StoreUnavailable)):
        await store.add([make_job()])

    assert engine.failed == {fault: 1}
    await store.close()
