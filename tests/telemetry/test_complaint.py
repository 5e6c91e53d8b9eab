"""A store that cannot be used is told of once, then ever more rarely, and when it can be again."""

import logging

import pytest

from outlast.errors import StoreBusy, StoreUnavailable
from outlast.telemetry.outage_log import OutageLog

LOG = logging.getLogger("outlast.worker")
GONE = StoreUnavailable("nobody answers")


@pytest.fixture
def complaint(caplog: pytest.LogCaptureFixture) -> OutageLog:
    caplog.set_level(logging.INFO, logger=LOG.name)
    return OutageLog(LOG, "take jobs")


def test_first_failure_is_told_and_then_the_tenth_and_the_hundredth(
    complaint: OutageLog, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(150):
        complaint.failed(GONE)

    assert caplog.messages == [
        "cannot take jobs; retrying failures=1: nobody answers",
        "cannot take jobs; retrying failures=10: nobody answers",
        "cannot take jobs; retrying failures=100: nobody answers",
    ]


def test_end_is_told_once_and_the_next_failure_is_a_first_one(
    complaint: OutageLog, caplog: pytest.LogCaptureFixture
) -> None:
    complaint.recovered()
    complaint.failed(GONE)
    complaint.recovered()
    complaint.recovered()
    complaint.failed(GONE)

    first = "cannot take jobs; retrying failures=1: nobody answers"
    assert caplog.messages == [first, "can take jobs again", first]


def test_another_kind_of_failure_is_told_at_once(
    complaint: OutageLog, caplog: pytest.LogCaptureFixture
) -> None:
    complaint.failed(GONE)
    complaint.failed(GONE)
    complaint.failed(StoreBusy("it is asked too much"))

    assert [message.partition(": ")[2] for message in caplog.messages] == [
        "nobody answers",
        "it is asked too much",
    ]
