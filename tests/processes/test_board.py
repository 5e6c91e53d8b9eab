"""The board: what a child writes there its supervisor reads, whatever becomes of the child."""

import os
import subprocess
import sys
from datetime import timedelta

import pytest

from outlast.core.delivery import Delivery
from outlast.core.ids import JobId, RunId
from outlast.core.run import Claim, Lease
from outlast.worker.supervisor.shared_lease_table import (
    MAX_ENTRIES,
    LeaseEntry,
    SharedLeaseTable,
    SharedLeaseWriter,
)

MINUTE = timedelta(minutes=1)


def claim(number: int, token: int = 1) -> Claim:
    return Claim(
        JobId(f"00000000-0000-7000-8000-{number:012x}"),
        token,
        RunId(f"run-{number}"),
        type="work",
        params="{}",
        delivery=Delivery.LEASE,
        failures=0,
        losses=0,
        max_attempts=5,
    )


@pytest.fixture
def board():
    board = SharedLeaseTable.new()
    yield board
    board.close()


@pytest.fixture
def held(board):
    return SharedLeaseWriter(board, lambda: 1_000_000)


def test_what_is_held_is_on_the_board_until_it_is_dropped(board, held):
    held.add([claim(1), claim(2, token=7)])
    held.remove(claim(1).lease)

    assert [entry.lease for entry in board.entries()] == [Lease(claim(2).job_id, 7)]
    assert (len(held), held.room) == (1, MAX_ENTRIES - 1)


def test_a_run_is_on_the_board_as_started_before_its_handler_is_called(board, held):
    held.add([claim(1), claim(2)])
    held.start(claim(1), executor="thread", limit=MINUTE)

    first, second = board.entries()
    assert first == LeaseEntry(claim(1).lease, 1_000_000, 61_000_000, "thread", is_stepping=False)
    assert second == LeaseEntry(claim(2).lease, None, None, "none", is_stepping=False)


def test_the_board_names_the_run_whose_code_the_loop_is_in(board, held):
    held.add([claim(1), claim(2)])

    held.on_step(claim(2).job_id)
    during = [entry.is_stepping for entry in board.entries()]
    held.on_step(None)
    after = [entry.is_stepping for entry in board.entries()]

    assert (during, after) == ([False, True], [False, False])


def test_an_old_token_drops_nothing(board, held):
    held.add([claim(1, token=2)])

    assert not held.remove(claim(1, token=1).lease)
    assert not held.has(claim(1, token=1).lease)
    assert len(list(board.entries())) == 1


def test_an_entry_is_used_again_without_a_trace_of_the_one_before(board, held):
    held.add([claim(1)])
    held.start(claim(1), executor="thread", limit=MINUTE)
    held.remove(claim(1).lease)
    held.add([claim(2)])

    assert list(board.entries()) == [
        LeaseEntry(claim(2).lease, None, None, "none", is_stepping=False)
    ]


def test_job_that_is_taken_again_has_one_entry_and_the_lost_lease_is_told(board, held):
    held.add([claim(1, token=1), claim(2)])

    lost = held.add([claim(1, token=4)])

    assert lost == [claim(1, token=1).lease]
    leases = {entry.lease for entry in board.entries()}
    assert leases == {claim(1, token=4).lease, claim(2).lease}
    assert (len(held), held.room) == (2, MAX_ENTRIES - 2)


def test_it_holds_as_many_as_it_says(board, held):
    claims = [claim(number) for number in range(MAX_ENTRIES)]

    held.add(claims)

    assert held.room == 0
    assert {entry.lease for entry in board.entries()} == {each.lease for each in claims}


def test_beats_and_counts_are_seen(board, held):
    held.add([claim(1)])
    held.remove(claim(1).lease)
    before = board.heartbeat

    held.heartbeat(4096)

    assert (before, board.heartbeat, board.memory_in_use, board.ended) == (0, 1_000_000, 4096, 1)


def test_what_a_killed_process_wrote_is_still_there(board):
    program = f"""
import os, signal, sys
from test_board import claim
from outlast.worker.supervisor.shared_lease_table import SharedLeaseTable, SharedLeaseWriter
held = SharedLeaseWriter(SharedLeaseTable({board.fd}), lambda: 5)
held.add([claim(1, token=3)])
held.start(claim(1, token=3), executor="async", limit=None)
os.kill(os.getpid(), signal.SIGKILL)
"""
    here = os.path.dirname(__file__)  # noqa: PTH120 - for a variable of the environment
    paths = os.pathsep.join([here, *sys.path])
    done = subprocess.run(
        [sys.executable, "-c", program],
        pass_fds=[board.fd],
        env={**os.environ, "PYTHONPATH": paths},
        check=False,
    )

    assert done.returncode == -9
    assert list(board.entries()) == [
        LeaseEntry(claim(1, token=3).lease, 5, None, "async", is_stepping=False)
    ]


def test_where_a_run_goes_on_is_on_the_board_and_so_is_that_its_handler_has_returned(board, held):
    held.add([claim(1)])
    held.start(claim(1), executor="thread", limit=MINUTE)

    held.change_executor(claim(1).lease, "command")
    [outside] = board.entries()
    held.change_executor(claim(1).lease, "none")
    [returned] = board.entries()

    assert (outside.executor, outside.deadline, outside.has_returned) == (
        "command",
        61_000_000,
        False,
    )
    assert returned.has_returned
    held.change_executor(claim(2).lease, "none")  # one that is not held is nobody's
