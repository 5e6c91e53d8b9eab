"""Scenes of keys that are held for a while, and of jobs that take a new request."""

from datetime import timedelta
from typing import Any

from outlast.core.event import Succeeded
from outlast.core.ids import JobId
from outlast.core.job import DedupeKey, KeyWindow, NewJob
from support.crash.world import SECOND, Scenario, World, nothing, register_in

WINDOWS: dict[str, Scenario] = {}
scenario = register_in(WINDOWS)

WINDOW = KeyWindow(key="k", span=SECOND)


def debounced(w: World, params: str, **over: Any) -> NewJob:
    """A job that is put off by further ones, for two seconds at most."""
    window = KeyWindow(key="k", at_most=2 * SECOND)
    return w.job(params=params, window=window, replaces=True, delay=SECOND, **over)


@scenario(nothing)
async def add_with_window(w: World, _: None) -> None:
    await w.store.add([w.job(window=WINDOW)])


async def _window_over(w: World) -> JobId:
    claim = await w.started(window=WINDOW)
    await w.settle(claim, Succeeded("1"))
    w.clock.advance(SECOND)
    return claim.id


@scenario(_window_over)
async def add_after_window(w: World, _: JobId) -> None:
    await w.store.add([w.job(window=WINDOW)])


@scenario(_window_over)
async def prune_window(w: World, _: JobId) -> None:
    await w.store.prune(older_than=timedelta(minutes=1), limit=10)


async def _waiting(w: World) -> JobId:
    return await w.add(params='"old"', key=DedupeKey(key="k"))


@scenario(_waiting)
async def replace_waiting(w: World, _: JobId) -> None:
    await w.store.add(
        [w.job(params='"new"', key=DedupeKey(key="k"), replaces=True, priority=3, delay=SECOND)]
    )


async def _claimed(w: World) -> JobId:
    return (await w.started(params='"old"', key=DedupeKey(key="k"))).id


@scenario(_claimed)
async def replace_claimed(w: World, _: JobId) -> None:
    await w.store.add([w.job(params='"new"', key=DedupeKey(key="k"), replaces=True)])


async def _debounced(w: World) -> None:
    await w.store.add([debounced(w, '"one"')])


@scenario(_debounced)
async def put_off(w: World, _: None) -> None:
    await w.store.add([debounced(w, '"two"')])


async def _debounced_claimed(w: World) -> None:
    await _debounced(w)
    w.clock.advance(SECOND)
    await w.claim()


@scenario(_debounced_claimed)
async def debounce_anew(w: World, _: None) -> None:
    await w.store.add([debounced(w, '"two"')])
