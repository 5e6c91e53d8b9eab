"""One SQLite file per test, an app on it with quick settings, and a watch over the event loop."""

import asyncio
from datetime import UTC, datetime
from math import inf

import pytest
from worker_helpers import quick

from outlast.worker import dispatcher, prefetch


@pytest.fixture
def path(tmp_path):
    return tmp_path / "jobs.db"


@pytest.fixture
async def app(path):
    async with quick(path) as app:
        yield app


@pytest.fixture
def slot():
    return datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture
async def rival(path, app):
    """Another app on the same file, with a store, a writer and connections of its own."""
    async with quick(path) as other:
        yield other


@pytest.fixture
def hoarding(monkeypatch):
    """Workers hold ready all they may, however slow the jobs are, and keep it."""
    monkeypatch.setattr(dispatcher, "MAX_PREFETCH_ONLY_S", inf)
    monkeypatch.setattr(dispatcher, "MAX_PREFETCH_WAIT_S", inf)
    monkeypatch.setattr(prefetch, "PREFETCH_TARGET_S", inf)
    monkeypatch.setattr(prefetch, "MAX_PREFETCH_WAIT_S", inf)


@pytest.fixture(autouse=True)
async def nothing_goes_unhandled():
    """No callback and no task of the worker's may die unseen."""
    seen = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: seen.append(context))
    yield
    assert seen == []
