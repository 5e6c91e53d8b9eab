"""The supervisor's log: written while its pipe is read, and never waited for."""

import logging
import os
from contextlib import suppress

import pytest

from outlast.cli.logging_setup import NonBlockingHandler

MANY = 5_000
WAITING = 100


@pytest.fixture
def pipe():
    reading, writing = os.pipe()
    yield reading, writing
    for fd in (reading, writing):
        with suppress(OSError):
            os.close(fd)


def record(text):
    return logging.LogRecord("outlast", logging.INFO, "", 0, text, None, None)


def test_log_that_is_not_read_is_not_waited_for_and_omissions_are_logged(pipe):
    reading, writing = pipe
    handler = NonBlockingHandler(writing, most=WAITING)

    for number in range(MANY):  # more than a pipe holds
        handler.handle(record(f"line {number} {'x' * 100}"))

    text = b""
    while b"log lines dropped" not in text:
        handler.handle(record("heard again"))
        text += os.read(reading, 1 << 20)
    os.close(reading)  # so that the rest of it is soon over
    handler.close()
    assert text.startswith(b"line 0 ")


def test_last_lines_are_written_before_the_end(pipe):
    reading, writing = pipe
    handler = NonBlockingHandler(writing)
    handler.handle(record("goodbye"))

    handler.close()

    assert os.read(reading, 100) == b"goodbye\n"


def test_log_whose_reader_is_gone_costs_nothing(pipe):
    reading, writing = pipe
    os.close(reading)
    handler = NonBlockingHandler(writing)

    for _ in range(10):
        handler.handle(record("no reader"))

    handler.close()
