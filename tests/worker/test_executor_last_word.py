"""Inside a handler's process: what it said last is said before its answer, whoever says it."""

import json
import socket
import threading

import pytest

from outlast.core.delivery import Delivery
from outlast.core.ids import JobId, RunId
from outlast.core.run import Claim
from outlast.worker.executors.process_main import HandlerServer, RemoteRun

CLAIM = Claim(
    JobId("00000000-0000-7000-8000-000000000001"),
    1,
    RunId("run-1"),
    type="work",
    params="{}",
    delivery=Delivery.LEASE,
    failures=0,
    losses=0,
    max_attempts=5,
)


class Held(RemoteRun):
    """Whoever takes its progress for the reporter is held up before it can say it."""

    __slots__ = ("go", "is_taken")

    def __init__(self, inside: HandlerServer) -> None:
        super().__init__(CLAIM, inside)
        self.is_taken, self.go = threading.Event(), threading.Event()

    def take_progress(self) -> str:
        taken = super().take_progress()
        self.is_taken.set()
        self.go.wait(1)
        return taken


@pytest.fixture
def line():
    here, there = socket.socketpair()
    with here, there:
        yield here, there


def test_last_word_that_another_thread_has_taken_comes_before_the_answer(line):
    here, there = line
    inside = HandlerServer(there)
    run = Held(inside)
    run.progress(1, 1)
    reporter = threading.Thread(target=inside.send_progress, args=(run,))
    reporter.start()
    run.is_taken.wait()

    answering = threading.Thread(
        target=lambda: (inside.send_progress(run), inside.send({"result": "null"}))
    )
    answering.start()
    answering.join(0.2)  # it waits for the other
    run.go.set()
    for thread in (reporter, answering):
        thread.join()

    with here.makefile("rb") as said:
        first, second = (json.loads(said.readline()) for _ in range(2))
    assert "progress" in first
    assert second == {"result": "null"}
