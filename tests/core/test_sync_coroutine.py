"""A coroutine that never suspends runs in synchronous code."""

import asyncio

import pytest

from outlast.core.sync_coroutine import run_without_waiting


async def _answer(number: int) -> int:
    return number + 1


async def test_result_is_returned_also_inside_a_running_loop() -> None:
    async def outer() -> int:
        return await _answer(1) + await _answer(2)

    assert run_without_waiting(outer()) == 5


def test_error_is_raised() -> None:
    async def broken() -> None:
        await _answer(1)
        raise KeyError("it")

    with pytest.raises(KeyError, match="it"):
        run_without_waiting(broken())


def test_coroutine_that_suspends_is_refused_and_closed() -> None:
    closed = []

    async def waits() -> None:
        try:
            await asyncio.sleep(0)
        finally:
            closed.append(True)

    with pytest.raises(RuntimeError, match="suspended"):
        run_without_waiting(waits())

    assert closed == [True]
