"""Random histories on PostgreSQL: whatever happens, the store answers as the model does."""

from typing import TYPE_CHECKING

import pytest
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test

from outlast.core.ids import Ids
from outlast.testing.clock import FakeClock
from outlast.testing.conformance.histories.machine import history_machine
from support.postgres.clock import DatabaseClock
from support.postgres.shared_store import Emptied

if TYPE_CHECKING:
    from outlast.store.postgres.store import PostgresStore

FEWER = 3
"""Each takes so many times as long as on a file."""


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_random_histories_are_those_of_the_model(postgres_url: str) -> None:
    """As in the other modules, but on a server that only a fixture knows."""

    def make(clock: FakeClock, ids: Ids) -> "PostgresStore":
        return Emptied(postgres_url, clock=DatabaseClock(clock), ids=ids)

    machine = history_machine(make, every=3)
    usual = machine.TestCase.settings
    fewer = settings(usual, max_examples=max(5, usual.max_examples // FEWER))
    run_state_machine_as_test(machine, settings=fewer)
