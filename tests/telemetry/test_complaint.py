"""A store that cannot be used is told of once, then ever more rarely, and when it can be again."""

import logging

import pytest

from outlast.errors import StoreBusy, StoreUnavailable
from outlast.telemetry.outage_log import Complaint

LOG = logging.getLogger("outlast.worker")
GONE = StoreUnavailable("nobody answers")


@pytest.fixture
def complaint(caplog: pytest.LogCaptureFixture) -> Complaint:
    caplog.set_level(logging.INFO, logger=LOG.name)
    return Complaint(LOG, "take jobs")


def test_first_failure_is_told_and_then_the_tenth_and_the_hundredth(
    complaint: Complaint, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(150):
        complaint.about(GONE)

    assert caplog.messages == [
        "cannot take jobs, will try again: nobody answers",
        "cannot take jobs, will try again (10 times in a row): nobody answers",
        "cannot take jobs, will try again (100 times in a row): nobody answers",
    ]


def test_end_is_told_once_and_the_next_failure_is_a_first_one(
    complaint: Complaint, caplog: pytest.LogCaptureFixture
) -> None:
    complaint.over()
    complaint.about(GONE)
    complaint.over()
    complaint.over()
    complaint.about(GONE)

    first = "cannot take jobs, will try again: nobody answers"
    assert caplog.messages == [first, "can take jobs again", first]


def test_another_kind_of_failure_is_told_at_once(
    complaint: Complaint, caplog: pytest.LogCaptureFixture
) -> None:
    complaint.about(GONE)
    complaint.about(GONE)
    complaint.about(StoreBusy("it is asked too much"))

    assert [message.partition(": ")[2] for message in caplog.messages] == [
        "nobody answers",
        "it is asked too much",
    ]
