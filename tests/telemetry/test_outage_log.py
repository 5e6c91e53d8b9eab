"""An outage is logged once, then ever more rarely, and once more when it is over."""

import logging

import pytest

from outlast.errors import StoreBusy, StoreUnavailable
from outlast.telemetry.outage_log import OutageLog

LOG = logging.getLogger("outlast.worker")
GONE = StoreUnavailable("no server answers")


@pytest.fixture
def outage(caplog: pytest.LogCaptureFixture) -> OutageLog:
    caplog.set_level(logging.INFO, logger=LOG.name)
    return OutageLog(LOG, "take jobs")


def test_first_tenth_and_hundredth_failure_are_logged(
    outage: OutageLog, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(150):
        outage.failed(GONE)

    assert caplog.messages == [
        "cannot take jobs; retrying failures=1: no server answers",
        "cannot take jobs; retrying failures=10: no server answers",
        "cannot take jobs; retrying failures=100: no server answers",
    ]


def test_recovery_is_logged_once_and_resets_the_count(
    outage: OutageLog, caplog: pytest.LogCaptureFixture
) -> None:
    outage.recovered()
    outage.failed(GONE)
    outage.recovered()
    outage.recovered()
    outage.failed(GONE)

    first = "cannot take jobs; retrying failures=1: no server answers"
    assert caplog.messages == [first, "can take jobs again", first]


def test_failure_of_another_kind_is_logged_at_once(
    outage: OutageLog, caplog: pytest.LogCaptureFixture
) -> None:
    outage.failed(GONE)
    outage.failed(GONE)
    outage.failed(StoreBusy("it is asked too much"))

    assert [message.partition(": ")[2] for message in caplog.messages] == [
        "no server answers",
        "it is asked too much",
    ]
