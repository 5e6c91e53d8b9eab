"""What every store's conformance module shares."""

from random import Random

import pytest

from holdfast.core.ids import Ids
from holdfast.testing.clock import FakeClock


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def ids(clock: FakeClock) -> Ids:
    return Ids(clock.now, Random(1).getrandbits)
