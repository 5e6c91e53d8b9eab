"""What a handler sees of its run, and the transaction it may share with its finish."""

import asyncio

import pytest

from outlast import RunError
from outlast.core.delivery import Delivery
from outlast.core.run import Claim
from outlast.run_context import WorkerRun

CLAIM = Claim("job-1", 4, "run-1", "send", "{}", Delivery.LEASE, 2, 1, 5)


class FakeTransaction:
    connection = "conn"

    def __init__(self):
        self.rolled_back = 0

    async def commit(self, changes):
        return True

    def check(self) -> None:
        """Its time has not run out."""

    async def rollback(self):
        self.rolled_back += 1


@pytest.fixture
def opened():
    return []


@pytest.fixture
async def run(opened):
    async def begin(blocking):
        opened.append(FakeTransaction())
        return opened[-1]

    return WorkerRun(CLAIM, begin=begin, loop=asyncio.get_running_loop())


def test_a_run_tells_who_it_is():
    run = WorkerRun(CLAIM)

    assert (run.id, run.job_id, run.type, run.token) == ("run-1", "job-1", "send", 4)
    assert run.attempt == 3
    assert not run.cancelled
    run.request_cancel()
    assert run.cancelled


def test_artifacts_are_gathered_within_bounds(tmp_path):
    run = WorkerRun(CLAIM)

    run.attach(tmp_path / "a.txt", "b.txt")
    run.attach("c.txt")

    assert run.artifacts == (str(tmp_path / "a.txt"), "b.txt", "c.txt")
    for bad in ("", "a\0", "\ud800", "x" * 5000):
        with pytest.raises(
            RunError, match=r"artifact .* cannot be stored; use a path of 1 to 4,096"
        ):
            run.attach(bad)
    with pytest.raises(RunError, match=r"would have 1,001 artifacts of .*; at most 1,000"):
        run.attach(*map(str, range(998)))
    assert len(run.artifacts) == 3


async def test_leaving_the_block_commits_nothing_and_leaves_it_to_the_finish(run, opened):
    assert run.opened is None
    async with run.transaction() as conn:
        assert conn == "conn"

    assert run.opened is opened[0]
    assert opened[0].rolled_back == 0


async def test_an_exception_in_the_block_rolls_back(run, opened):
    with pytest.raises(KeyError):
        async with run.transaction():
            raise KeyError

    assert opened[0].rolled_back == 1
    assert run.opened is None


async def test_there_is_one_transaction_per_run(run, opened):
    block = run.transaction()
    async with block:
        pass

    with pytest.raises(RunError, match="run run-1 has had its transaction; there is one per run"):
        run.transaction()
    with pytest.raises(RunError, match="entered before"):
        async with block:
            pass
    assert len(opened) == 1


async def test_a_thread_handler_uses_a_plain_with(run, opened):
    def handler():
        with pytest.raises(RunError, match="runs in a thread; write `with run"):
            asyncio.run(misuse())
        with block as conn:
            assert conn == "conn"

    async def misuse():
        async with block:
            pass

    block = run.transaction()
    await asyncio.to_thread(handler)

    assert run.opened is opened[0]


async def test_an_exception_in_a_threads_block_rolls_back(run, opened):
    def handler():
        with run.transaction():
            raise KeyError

    with pytest.raises(KeyError):
        await asyncio.to_thread(handler)

    assert opened[0].rolled_back == 1


async def test_a_plain_with_on_the_loop_is_told_instead_of_hanging(run, opened):
    with pytest.raises(RunError, match="this handler is async; write `async with"):  # noqa: SIM117
        with run.transaction():
            pass

    assert opened == []


def test_a_store_without_transactions_says_so():
    with pytest.raises(RunError, match=r"run run-1 has no transaction: its store.*make the effect"):
        WorkerRun(CLAIM).transaction()
