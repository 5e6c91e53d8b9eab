"""`outlast db copy`: everything from one store to another, while one of them works."""

import asyncio
import secrets
import sys
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from dataclasses import asdict
from datetime import timedelta
from typing import Self

import click

from outlast.cli.command import Exit, exit_on_error
from outlast.cli.output import Output
from outlast.cli.progress import Advance
from outlast.clock import SystemClock
from outlast.core.duration import parse_duration
from outlast.core.ids import Ids
from outlast.errors import InvalidArgument, StoreMissing
from outlast.store.contract import Store
from outlast.store.open import open_store
from outlast.transfer import CopyResult, StoreCopy, address_of

MOST_GRACE = timedelta(hours=24)


@click.command("copy")
@click.option("--from", "from_url", required=True, help="The store that works now.")
@click.option("--to", "to_url", required=True, help="The one to take its place; it is empty.")
@click.option(
    "--grace",
    default="30s",
    show_default=True,
    help="How long running jobs may take to end before they are handed back.",
)
@click.option("--json", "as_json", is_flag=True, help="JSON on stdout, one object.")
@click.option("--plain", is_flag=True, help="No colour, no lines, no progress.")
def command(from_url: str, to_url: str, grace: str, as_json: bool, plain: bool) -> None:
    """Move everything into another store, with order, history, keys and schedules as they are.

    The source works on while its history is copied; then both wait for a moment. Killed at any
    step, exactly one of them takes work; the same command again goes on from there.
    """
    with exit_on_error():
        out = Output(as_json=as_json, plain=plain)
        span = _grace(grace)
        if address_of(from_url) == address_of(to_url):
            raise InvalidArgument("--from and --to name the same store; name two")
        asyncio.run(_copy(out, from_url, to_url, span))
        sys.exit(Exit.OK)


def _grace(text: str) -> timedelta:
    try:
        span = parse_duration(text, what="--grace")
    except ValueError as error:
        raise InvalidArgument(str(error)) from error
    if span > MOST_GRACE:
        raise InvalidArgument(f"--grace is {text}; it can be at most 24h")
    return span


async def _copy(out: Output, from_url: str, to_url: str, grace: timedelta) -> None:
    ids = Ids(SystemClock().now, secrets.randbits)
    async with _opened(from_url) as source, _opened(to_url, creates=True) as target:
        with StepProgress(out) as progress:
            copied = await StoreCopy(
                source,
                target,
                from_url=from_url,
                to_url=to_url,
                new_id=ids.job,
                grace=grace,
                progress=progress,
            ).run()
    _tell(out, copied, to_url)


@asynccontextmanager
async def _opened(url: str, *, creates: bool = False) -> AsyncIterator[Store]:
    store = open_store(url)
    if not creates and not store.exists():
        raise StoreMissing(f"there is no store at {address_of(url)} to copy from; check --from")
    await store.open()
    try:
        yield store
    finally:
        await store.close()


class StepProgress:
    """A bar for each step, one after the other."""

    def __init__(self, out: Output) -> None:
        self._out = out
        self._step: str | None = None
        self._shown = ExitStack()
        self._advance: Advance | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._shown.close()

    def __call__(self, step: str, more: int) -> None:
        if step != self._step:
            self._shown.close()
            self._step = step
            self._advance = self._shown.enter_context(self._out.progress(step, None))
        if more and self._advance is not None:
            self._advance(more)


def _tell(out: Output, copied: CopyResult | None, to_url: str) -> None:
    if copied is None:
        out.message(f"all was copied before; {address_of(to_url)} takes work now")
        return
    if out.as_json:
        out.record(asdict(copied))
    else:
        for kind, held in copied.digests.items():
            out.line(f"{kind:<13} {held.rows:>10,}  {held.digest[:16]}")
    out.message(
        f"{copied.target} has taken the place of {copied.source}: compared and verified, in "
        f"{copied.seconds:.1f} s, of which {copied.sealed_for:.1f} s without work"
    )
