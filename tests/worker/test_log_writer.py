"""The log writer: few writes, nothing lost by a failed one, nothing written after a lost lease."""

import pytest

from outlast import InvalidType, Outlast
from outlast.core.run import Lease
from outlast.core.run_log import Entry
from outlast.errors import ConfigurationError, StoreBusy
from outlast.worker.log_writer import LogWriter
from outlast.worker.run_log import RunLog


class FakeStore:
    """Answers writes as told."""

    def __init__(self, *answers):
        self.answers = list(answers)
        self.writes = []

    async def write_logs(self, writes):
        self.writes.append([(lease.token, write) for lease, write in writes])
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


def watched(store, settings, *tokens):
    writer = LogWriter(store.write_logs, settings, is_paid=False, interval=3600.0)
    logs = [RunLog(Lease("job", token), level=0, limit=4096) for token in tokens]
    for each in logs:
        writer.watch(each)
    return writer, logs


async def test_all_logs_are_written_by_one_call_and_nothing_is_written_without_news(app):
    store = FakeStore([True, True])
    writer, logs = watched(store, app.settings, 1, 2, 3)
    for each in logs[:2]:
        add_line(each, "x")
        add_line(each, "y")

    await writer.write()
    await writer.write()
    writer.close()

    [written] = store.writes
    assert {token: [chunk.lines for chunk in write.chunks] for token, write in written} == {
        1: [2],
        2: [2],
    }


async def test_write_that_fails_is_repeated_with_later_lines(app, caplog):
    store = FakeStore(StoreBusy("away"), [True])
    writer, [one] = watched(store, app.settings, 1)
    add_line(one, "x")
    await writer.write()
    add_line(one, "y")
    await writer.write()
    writer.close()

    assert [[chunk.lines for chunk in write.chunks] for [(_, write)] in store.writes] == [[1], [2]]
    assert "the logs of 1 runs were not written: away" in caplog.text
    assert not one.has_news


@pytest.mark.parametrize("answer", [[False], RuntimeError("bug")], ids=["lost", "bug"])
async def test_worker_whose_lease_was_lost_writes_nothing_more(app, answer):
    store = FakeStore(answer)
    writer, [one] = watched(store, app.settings, 1)
    add_line(one, "x")
    await writer.write()
    one.close()
    writer.forget(one)
    add_line(one, "y")
    await writer.write()
    writer.close()

    assert len(store.writes) == 1


def add_line(log_of_run, text):
    log_of_run.add(Entry(1, "INFO", "app", text))


async def test_end_of_a_run_brings_lines_that_a_write_under_way_has(app):
    """The write may reach the store after the end, which the fence refuses."""
    writer, [one] = watched(FakeStore([True]), app.settings, 1)
    for number in range(20):  # more than a chunk
        add_line(one, f"{number} and sixty more characters, so that they fill the first chunk")
    under_way = one.take()
    add_line(one, "last")

    last = one.close()
    writer.close()

    assert under_way is not None
    assert last is not None
    assert len(last.chunks) > 1
    assert sum(chunk.lines for chunk in last.chunks) == 21


def test_unknown_level_is_refused_with_the_known_ones(path):
    with pytest.raises(InvalidType, match=r"job type \"work\".*'LOUD'.*DEBUG, INFO"):

        @Outlast(f"sqlite:///{path}").job(log_capture="LOUD")
        async def work() -> None: ...

    with pytest.raises(ConfigurationError, match=r"log_capture is 3; use True, False or a level"):
        Outlast(f"sqlite:///{path}", log_capture=3)  # type: ignore[arg-type]
