"""What log capture costs in statements: none without lines, one in the transaction of the end."""

import logging

import pytest

from outlast import Outlast
from outlast.store.sqlite.store import SqliteStore
from outlast.testing.drain import HOLDER
from outlast.worker.lease_table import InMemoryLeaseTable

log = logging.getLogger("their.app")
log.setLevel(logging.DEBUG)


@pytest.mark.parametrize("captures", [True, False])
async def test_type_that_logs_nothing_costs_no_statement_and_no_byte(tmp_path, captures):
    plain = await statements_of(tmp_path / "off.db", log_capture=False, logs=False)

    found = await statements_of(tmp_path / "other.db", log_capture=captures, logs=False)

    assert found == plain


async def test_two_lines_cost_one_statement_in_the_transaction_of_the_end(tmp_path):
    plain = await statements_of(tmp_path / "off.db", log_capture=False, logs=True)

    found = await statements_of(tmp_path / "on.db", log_capture=True, logs=True)

    added = list(found)
    for name in plain:
        added.remove(name)
    assert added == ["logs.write"]
    assert found[found.index("logs.write") + 1 :][:2] == ["finish.clear", "finish.load"]


async def statements_of(path, *, log_capture, logs):
    """The statements that one run of a job takes, from its claim to its end."""
    names = []
    store = SqliteStore(path, probe=lambda name, after: names.append(name) if not after else None)
    app = Outlast(store, log_capture=log_capture, tick="1h", poll="1h", renew="1h", lease="4h")

    @app.job
    async def work() -> None:
        if logs:
            log.warning("one")
            log.warning("two")

    async with app:
        await work.enqueue()
        engine = app._new_engine(
            InMemoryLeaseTable(), queues=None, types=None, concurrency=1, app_address="x:app"
        )
        engine.prepare(HOLDER)
        names.clear()
        await engine.run_once()
        found = [name for name in names if name != "workers.list"]  # once a second, beside it all
        engine.close()
    return found
