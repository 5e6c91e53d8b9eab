"""The log of a run in memory: bounded, numbered, and taken without loss."""

import threading

import pytest

from outlast.core.ids import JobId
from outlast.core.run import Lease
from outlast.core.run_log import MAX_CHUNK, MAX_LOG, MAX_PAID_LOG, Entry, LogChunk, read
from outlast.testing.conformance.sizes import SIZES
from outlast.worker.run_log import RunLog

LEASE = Lease(JobId("job"), 3)


def new_log(limit=MAX_LOG, **more):
    return RunLog(LEASE, level=0, limit=limit, **more)


def add(log, *texts):
    for text in texts:
        log.add(Entry(1, "INFO", "app", text))


class Stored:
    """What a store holds after each write."""

    def __init__(self):
        self.chunks = {}

    def take(self, log):
        write = log.take()
        if write is None:
            return
        self.chunks |= {chunk.first: chunk for chunk in write.storable}
        for first in write.dropped:
            del self.chunks[first]
        log.stored(write)

    @property
    def lines(self):
        return list(read(LEASE.token, [chunk for _, chunk in sorted(self.chunks.items())]))

    @property
    def size(self):
        return sum(len(chunk.text.encode()) for chunk in self.chunks.values())


def in_memory(log):
    """Bytes of the lines that a log holds."""
    chunks = [*log._news.values(), *(log._tail or ()), *([log._last] if log._last else [])]
    held = {id(chunk): sum(len(line.encode()) for line in chunk.lines) for chunk in chunks}
    taken = log._taken.chunks if log._taken else ()
    return sum(held.values()) + sum(len(chunk.text.encode()) for chunk in taken)


def test_lines_come_back_in_order_with_their_numbers():
    log, stored = new_log(), Stored()
    add(log, "a", "b\nc", "dé\0\ud800")
    stored.take(log)

    assert [(line.number, line.text) for line in stored.lines] == [
        (1, "a"),
        (2, "b\nc"),
        (3, "dé\0\ud800"),
    ]
    assert {(line.token, line.level, line.logger) for line in stored.lines} == {(3, "INFO", "app")}
    assert [line.omitted for line in stored.lines] == [0, 0, 0]


def test_run_that_logs_nothing_has_nothing_to_write():
    log = new_log()

    assert log.take() is None
    assert not log.has_news
    assert log.close() is None


@pytest.mark.parametrize("each", [1, 7, 100_000], ids=lambda n: f"taken-after-{n}")
@pytest.mark.parametrize("limit", [MAX_LOG, MAX_PAID_LOG])
def test_long_log_keeps_head_and_tail_and_counts_what_is_missing(limit, each):
    log, stored, lines = new_log(limit), Stored(), 12_000

    for number in range(1, lines + 1):
        add(log, f"line {number}")
        if number % each == 0:
            stored.take(log)
    stored.take(log)

    numbers = [line.number for line in stored.lines]
    gaps = [line for line in stored.lines if line.omitted]
    assert [line.text for line in stored.lines] == [f"line {number}" for number in numbers]
    assert (numbers[0], numbers[-1]) == (1, lines)
    assert len(gaps) == 1
    assert len(numbers) + gaps[0].omitted == lines
    assert limit // 2 < stored.size <= limit
    assert len(stored.chunks) <= 40


def test_lines_without_end_are_counted_and_take_no_more_memory_than_the_limit():
    log, most, lines = new_log(), 0, SIZES.logged_lines

    for number in range(lines):
        log.add(Entry(number, "INFO", "app", "the same line again and again"))
        if number % 10_000 == 0:
            most = max(most, in_memory(log))

    write = log.close()
    assert write is not None
    assert write.chunks[-1].last == lines
    # The last chunk is in memory twice: it may grow, and its text was taken.
    assert max(most, in_memory(log)) <= MAX_LOG + MAX_LOG // 32
    assert sum(len(chunk.text.encode()) for chunk in write.chunks) <= MAX_LOG


def test_lines_that_are_stored_leave_the_memory():
    log, stored = new_log(), Stored()
    add(log, *("x" * 1000 for _ in range(100)))
    before = in_memory(log)

    stored.take(log)

    assert before > 100_000
    assert in_memory(log) <= MAX_LOG // 32


def test_long_line_keeps_its_head_and_its_tail():
    log, stored = new_log(), Stored()
    add(log, "head" + "ü\0" * MAX_CHUNK + "ZeroDivisionError: tail", "after")
    stored.take(log)

    first, second = stored.lines
    assert first.text.startswith("headü\0")
    assert " … [cut] … " in first.text
    assert first.text.endswith("ZeroDivisionError: tail")
    assert len(first.text.encode()) < MAX_CHUNK
    assert second.text == "after"


def test_what_was_not_stored_is_taken_again_with_what_came_since():
    log = new_log()
    add(log, "a")
    lost = log.take()
    add(log, "b")

    again = log.take()

    assert lost is not None
    assert again is not None
    assert [line.text for line in read(1, again.chunks)] == ["a", "b"]
    log.stored(lost)  # too late: more was taken since
    assert log.take() is again
    log.stored(again)
    assert log.take() is None


def test_chunk_that_was_dropped_before_it_was_stored_is_not_written():
    log = new_log(MAX_PAID_LOG)
    add(log, *(f"line {number}" for number in range(400)))
    first = log.take()
    add(log, *(f"line {number}" for number in range(400, 2_000)))

    again = log.take()

    assert first is not None
    assert again is not None
    assert again.dropped
    assert not {chunk.first for chunk in again.chunks} & set(again.dropped)
    assert sum(len(chunk.text) for chunk in again.chunks) <= MAX_PAID_LOG


def test_closed_log_takes_no_more_lines():
    log = new_log()
    add(log, "a")
    last = log.close()
    add(log, "b")

    assert log.close() is last
    assert last is not None
    assert [line.text for line in read(1, last.chunks)] == ["a"]


def test_threads_lose_no_line():
    log, stored = new_log(), Stored()
    threads = [
        threading.Thread(target=add, args=(log, *(f"{name}{n}" for n in range(300))))
        for name in "abcd"
    ]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        stored.take(log)
    stored.take(log)

    texts = [line.text for line in stored.lines]
    assert sorted(texts) == sorted(f"{name}{n}" for name in "abcd" for n in range(300))
    for name in "abcd":
        own = [text for text in texts if text.startswith(name)]
        assert own == [f"{name}{n}" for n in range(300)]


def test_first_line_after_a_take_is_notified_once():
    told = []
    log = new_log(notify=told.append)
    add(log, "a", "b")
    log.take()
    add(log, "c", "d")

    assert told == [log, log]


@pytest.mark.parametrize(
    "text",
    ["no JSON", "", "[]", "3", '["then","INFO","app","x"]', '[1,"INFO","app",2]', "[" * 9999],
)
def test_damaged_chunk_is_one_line_that_says_so(text):
    chunks = [LogChunk(1, 2, text), LogChunk(3, 1, '[1,"INFO","app","x"]')]

    lines = list(read(1, chunks))

    assert [(line.number, line.text) for line in lines] == [
        (1, "2 lines cannot be read"),
        (3, "x"),
    ]
