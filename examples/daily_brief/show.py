"""`python -m daily_brief.show job_runs`: S0's tables, a JSON object per line."""

import argparse
import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from command_exit import clean_exit

from . import job_runs
from .config import DESK_FILE, store_url
from .desk import Desk, stamp
from .web import Counter

Row = Mapping[str, Any]
Query = Callable[[Counter, Desk], Awaitable[Sequence[Row]]]
MOST: Final = 1000


async def runs(counter: Counter, desk: Desk) -> Sequence[Row]:
    """S0 5: every run, newest first."""
    await job_runs.install(counter, desk)
    return job_runs.latest(desk, MOST)


async def running(counter: Counter, desk: Desk) -> Sequence[Row]:
    """S0 7: runs that are open, also those of a dead worker."""
    return [row for row in await runs(counter, desk) if row["status"] == "running"]


async def slots(counter: Counter, _: Desk) -> Sequence[Row]:
    """Every slot with its outcome, also missed ones, newest first."""
    found = [
        {
            "job_name": each.name,
            "scheduled_for": stamp(slot.slot.at),
            "outcome": str(slot.outcome),
            "answered_at": stamp(slot.actual),
            "job_id": slot.job_id,
        }
        for each in await counter.schedules.list()
        for slot in await counter.schedules.history(each.name, limit=MOST)
    ]
    return sorted(found, key=lambda row: (row["scheduled_for"], row["job_name"]), reverse=True)


async def feeds(_: Counter, desk: Desk) -> Sequence[Row]:
    """Every feed with its last error."""
    with desk.reading() as tx:
        return [dict(row) for row in tx.run("feeds")]


QUERIES: Final[Mapping[str, Query]] = {
    "job_runs": runs,
    "running": running,
    "slots": slots,
    "feeds": feeds,
}


def main(argv: Sequence[str] | None = None) -> None:
    asked = _arguments(argv)
    for row in asyncio.run(_ask(asked.query, asked.folder.absolute())):
        print(json.dumps(row, ensure_ascii=False))


async def _ask(query: str, folder: Path) -> Sequence[Row]:
    async with Counter(store_url(folder)) as counter:
        return await QUERIES[query](counter, Desk(folder / DESK_FILE))


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    told = "\n".join(f"  {name:<10}{query.__doc__}" for name, query in QUERIES.items())
    parser = argparse.ArgumentParser(
        prog="python -m daily_brief.show",
        description="Ask a brief one of S0's questions.",
        epilog=f"queries:\n{told}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("query", choices=QUERIES, metavar="query")
    parser.add_argument("folder", type=Path, nargs="?", default=Path(), help="the brief's folder")
    return parser.parse_args(argv)


if __name__ == "__main__":
    with clean_exit():
        main()
