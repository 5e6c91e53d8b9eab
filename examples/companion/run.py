"""`python -m companion.run`: run the companion once and print its jobs as items of S2."""

import argparse
import asyncio
from collections.abc import Sequence
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Final

from command_exit import clean_exit, log_to
from outlast import Handle

from .companion import Companion, Rules
from .show import items

USERS: Final = ("ada", "bob", "eve", "zoe")
"""User zoe is not in the directory."""

MINUTE: Final = 60


def main(argv: Sequence[str] | None = None) -> None:
    asked = _arguments(argv)
    asked.folder.mkdir(parents=True, exist_ok=True)
    minute: float = asked.minute
    rules = Rules(
        poll_seconds=minute / 2,
        base_delay_seconds=minute,
        lease_seconds=Rules().lease_seconds if minute >= MINUTE else 3,
    )
    log_to(asked.folder / "companion.log")
    print(f"A minute of S2 takes {minute:g} s here: base delay {minute:g} s, 5 attempts.")
    asyncio.run(_work(Companion(asked.folder, asked.url, rules=rules), asked.day))
    where = "" if asked.url is None else f" --url '{asked.url}'"
    print(f"\nEvery field: python -m companion.show {asked.folder}{where}")


async def _work(companion: Companion, day: date) -> None:
    sent_before = {message.token for message in companion.world.chat.messages()}
    async with companion.app, companion.app.worker():
        _say("The users are synced first:")
        await _all_ended(companion, [await companion.schedule_sync(user) for user in USERS])
        _say(f"The summaries of {day}, each requested twice:")
        asked = [await companion.schedule_summary(user, day) for user in USERS * 2]
        new = sum(handle.created for handle in asked)
        print(f"  {len(asked)} calls, {new} new jobs")
        await _all_ended(companion, asked)
    _say("What the users were told:")
    sent = [each for each in companion.world.chat.messages() if each.token not in sent_before]
    for message in sent:
        print(f"  {message.user_id:<5} {message.text}")
    if not sent:
        print("  nothing new: they got their summaries in an earlier run")


async def _all_ended(companion: Companion, handles: Sequence[Handle[None]]) -> None:
    ended = {handle.id: await handle.wait() for handle in handles}
    for each in await items(companion):
        job_id = each.SK.rpartition("#")[2]
        if job_id in ended:
            error = (each.last_error or "").strip().rpartition("\n")[2]
            user = each.payload["user_id"]
            row = f"{each.job_type:<14} {user:<5} {each.status:<12} attempts {each.attempts}"
            print(f"  {row}  {error}".rstrip())


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m companion.run", description=__doc__)
    parser.add_argument("folder", type=Path, nargs="?", default=Path("companion-home"))
    parser.add_argument("--url", help="where the jobs are; a file in the folder unless given")
    parser.add_argument("--day", type=date.fromisoformat, default=datetime.now(UTC).date())
    parser.add_argument(
        "--minute", type=float, default=0.1, help="seconds per minute of S2; 60 is S2 itself"
    )
    return parser.parse_args(argv)


def _say(text: str) -> None:
    print(f"\n{text}")


if __name__ == "__main__":
    with clean_exit():
        main()
