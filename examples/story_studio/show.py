"""`python -m story_studio.show order`: what one of S1's queries answers, a JSON object per line."""

import argparse
import asyncio
import json
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

from command_exit import clean_exit

from .queries import QUERIES, Row
from .studio import Studio


def main(argv: Sequence[str] | None = None) -> None:
    asked = _arguments(argv)
    for row in asyncio.run(_ask(asked.query, asked.folder)):
        print(json.dumps(row, ensure_ascii=False, default=datetime.isoformat))


async def _ask(query: str, folder: Path) -> Sequence[Row]:
    studio = Studio(folder)
    async with studio.app:
        return await QUERIES[query](studio)


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    told = "\n".join(f"  {name:<20}{query.__doc__}" for name, query in QUERIES.items())
    parser = argparse.ArgumentParser(
        prog="python -m story_studio.show",
        description="Ask a studio one of S1's questions.",
        epilog=f"queries:\n{told}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("query", choices=QUERIES, metavar="query")
    parser.add_argument("folder", type=Path, nargs="?", default=Path(), help="the studio's folder")
    return parser.parse_args(argv)


if __name__ == "__main__":
    with clean_exit():
        main()
