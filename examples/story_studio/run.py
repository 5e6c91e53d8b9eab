"""`python -m story_studio.run`: run the studio once and print the tables of S1."""

import argparse
import asyncio
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Final

from command_exit import clean_exit, log_to

from . import words
from .queries import QUERIES, reserved
from .studio import QUEUE, Studio
from .tables import table

COLUMNS: Final = {
    "jobs": "job_id job_type params status run position retry_of",
    "job_runs": "job_id status exit_code error artifacts",
    "job_templates": "template_id name job_type params",
    "schedules": "schedule_id name cron_expression timezone next_trigger_at",
    "direct_reservations": "reservation_id reserved_by reserved_at status expires_at",
    "reserved": "reservation_id reserved_by reserved_at status expires_at",
}
"""Columns that fit into a terminal of 100; `show` prints all of them. `run` is a job's outcome."""

NIGHTLY: Final = "A bedtime story, every night"

TIMES: Final = {
    "jobs": "created_at",
    "job_runs": "started_at",
    "direct_reservations": "reserved_at",
}
"""The column that tells an earlier run of this command from the present one."""


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m story_studio.run", description=__doc__)
    parser.add_argument("folder", type=Path, nargs="?", default=Path("studio"))
    folder: Path = parser.parse_args(argv).folder
    folder.mkdir(parents=True, exist_ok=True)
    log_to(folder / "studio.log")
    asyncio.run(_work(Studio(folder)))
    print(f"\nEvery column: python -m story_studio.show jobs {folder}")


async def _work(studio: Studio) -> None:
    async with studio.app:
        began = await studio.app.store.now()
        doomed = await _fill_the_queue(studio)
        await _show(studio, "order")
        await _run_everything(studio)
        for name in ("job_templates", "jobs", "job_runs", "direct_reservations"):
            await _show(studio, name, since=began)
        await _show_chain(studio, doomed)
        await _plan_the_nights(studio)


async def _fill_the_queue(studio: Studio) -> str:
    """Enqueue five jobs and move one of them; return the id of the one that will fail."""
    await studio.prepare()
    app, story, research = studio.app, studio.story, studio.research
    await app.templates.save("bedtime", story, params={"topic": "lighthouses", "pages": 3})
    await app.templates.save("background", research, params={"topic": "lighthouses"})
    _say("Queued: a bedtime story, one about dragons, the first one's background (twice), tides.")
    await app.templates.enqueue("bedtime", title="The Keeper's Lamp")
    doomed = await story.enqueue(title="The Unknown Dragon", topic="dragons")
    needed = await app.templates.enqueue("background")
    await app.templates.enqueue("background")
    await app.templates.enqueue("background", topic="tides")
    _say("The bedtime story needs its background: that is moved to the front.")
    await needed.move("front")
    return doomed.id


async def _run_everything(studio: Studio) -> None:
    """Request a direct run, then start the worker, which runs it before the rest of the queue."""
    _say("A direct run is requested. Its reservation blocks the rest of the queue:")
    async with asyncio.TaskGroup() as tasks:
        direct = tasks.create_task(
            studio.story.options(wait="1m", request="the boss").run_now(title="A Story Right Now")
        )
        while not await reserved(studio):  # noqa: ASYNC110 - there is no event to wait for
            await asyncio.sleep(0.01)
        await _show(studio, "reserved")
        await _show(studio, "order")
        _say("One worker, one job at a time. There are no notes on dragons, so that job fails.")
        async with studio.app.worker(queues=[QUEUE], instance_id="studio-1") as worker:
            await (await direct).wait("1m")
            await worker.drained()


async def _plan_the_nights(studio: Studio) -> None:
    """S1 2.3: a schedule of the template, unless an earlier run of this command made it."""
    _say("A schedule makes a job of the bedtime template every night:")
    if all(row["name"] != NIGHTLY for row in await QUERIES["schedules"](studio)):
        template = await studio.app.templates.get("bedtime")
        await studio.schedule(
            template_id=template.id,
            name=NIGHTLY,
            cron_expression="0 20 * * *",
            timezone="Europe/Berlin",
            param_overrides={"title": "Good Night"},
        )
    await _show(studio, "schedules")


async def _show(studio: Studio, name: str, *, since: datetime | None = None) -> None:
    """Print a table; with `since`, without the rows of an earlier run of this command."""
    rows = await QUERIES[name](studio)
    if since is not None and name in TIMES:
        rows = [row for row in rows if row[TIMES[name]] >= since]
    if name == "jobs":
        outcomes = {row["job_id"]: row["status"] for row in await QUERIES["job_runs"](studio)}
        rows = [{**row, "run": outcomes.get(row["job_id"])} for row in rows]
    if name in COLUMNS:
        rows = [{column: row[column] for column in COLUMNS[name].split()} for row in rows]
    print(f"\n{table(name, rows)}")


async def _show_chain(studio: Studio, job_id: str) -> None:
    """S1 2.4: a job and its retries, each under the one it is a retry of."""
    _say("The chain of the story about dragons:")
    for number, job in enumerate((await studio.app.lineage(job_id)).jobs):
        row = words.job_row(job)
        mark = "permanently failed" if row.permanently_failed else "failed"
        print(f"  {'    ' * number}{row.job_id}  attempt {number}  {mark}")


def _say(text: str) -> None:
    print(f"\n{text}")


if __name__ == "__main__":
    with clean_exit():
        main()
