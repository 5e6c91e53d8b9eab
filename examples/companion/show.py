"""`python -m companion.show`: every job as an item of S2, a JSON object per line."""

import argparse
import asyncio
import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from command_exit import clean_exit
from outlast.store.contract.jobs import Filter

from .companion import Companion
from .words import Item, item

PAGE = 1_000


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m companion.show", description=__doc__)
    parser.add_argument("folder", type=Path, nargs="?", default=Path("companion-home"))
    parser.add_argument("--url", help="where the jobs are, if not in the folder")
    asked = parser.parse_args(argv)
    for each in asyncio.run(_ask(Companion(asked.folder, asked.url))):
        print(json.dumps(asdict(each), ensure_ascii=False))


async def _ask(companion: Companion) -> list[Item]:
    async with companion.app:
        return await items(companion)


async def items(companion: Companion) -> list[Item]:
    """Every job, in the order of SK, which is S2's."""
    store = companion.app.store
    found: list[Item] = []
    before = None
    while page := await store.find(Filter(), limit=PAGE, before=before):
        found += [item(job, await companion.app.runs(job.id)) for job in page]
        before = page[-1].seq
    return sorted(found, key=lambda each: each.SK)


if __name__ == "__main__":
    with clean_exit():
        main()
