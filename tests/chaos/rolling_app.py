"""One app before and after a deploy that adds a param: `old` and `new`, for a worker each."""

import json
import os
from pathlib import Path

from outlast import Outlast, Run


def versions(url: str, **settings: str) -> tuple[Outlast, Outlast]:
    """The two versions of the app."""
    old, new = Outlast(url, name="rolling", **settings), Outlast(url, name="rolling", **settings)

    async def before(run: Run, n: int) -> str:
        return f"old {n}"

    async def after(run: Run, n: int, day: str = "any day") -> str:
        return f"new {n} {day}"

    for name, delivery in (("send", "lease"), ("story", "linked")):
        old.job(name=name, delivery=delivery)(before)
        new.job(name=name, delivery=delivery)(after)
    return old, new


if "CHAOS_FOLDER" in os.environ:
    file = Path(os.environ["CHAOS_FOLDER"]) / "jobs.db"
    old, new = versions(f"sqlite:///{file}", **json.loads(os.environ["CHAOS_SETTINGS"]))
