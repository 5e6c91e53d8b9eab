"""A job of a schedule in a process of its own: it runs, and knows the slot it was made for."""

from datetime import UTC, datetime

import pytest
from executor_app import ADDRESS, register
from executor_helpers import LONG
from worker_helpers import quick

SLOT = datetime(2026, 1, 5, 9, tzinfo=UTC)


@pytest.mark.slow
async def test_a_handler_in_a_process_of_its_own_knows_its_slot(path, tmp_path):
    async with quick(path, logs=tmp_path / "logs") as app:
        kind = register(app).registry.get("which_slot")
        async with app.worker(app_address=ADDRESS):
            with_one = await kind.options(slot=SLOT).enqueue()

            assert await with_one.result(LONG) == SLOT.isoformat()
