"""`outlast db copy`: transfer a system to another store."""

import asyncio
import os
import secrets
import sys
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from dataclasses import asdict
from datetime import timedelta
from typing import Self

import click

from outlast.cli.command import Exit, exit_on_error
from outlast.cli.output import CommandOutput
from outlast.cli.progress import Advance
from outlast.clock import SystemClock
from outlast.core.duration import parse_duration
from outlast.core.ids import Ids
from outlast.errors import InvalidArgument, StoreMissing
from outlast.store.contract import Store
from outlast.store.open import open_store
from outlast.transfer import CopyResult, StoreCopy, address_of

MAX_GRACE = timedelta(hours=24)


@click.command("copy")
@click.option("--from", "from_url", help="URL of the store in use.")
@click.option("--to", "to_url", help="URL of the empty store that replaces it.")
@click.option("--from-env", metavar="NAME", help="Environment variable with the URL of --from.")
@click.option("--to-env", metavar="NAME", help="Environment variable with the URL of --to.")
@click.option(
    "--grace",
    default="30s",
    show_default=True,
    help="How long running jobs may take to end before they are released.",
)
@click.option("--json", "as_json", is_flag=True, help="JSON on stdout, one object.")
@click.option("--plain", is_flag=True, help="No colours and no progress bar.")
def db_copy_command(
    from_url: str | None,
    to_url: str | None,
    from_env: str | None,
    to_env: str | None,
    grace: str,
    as_json: bool,
    plain: bool,
) -> None:
    """Transfer everything to another store: order, history, keys and schedules are preserved.

    The source stays in use while its history is copied. Then it is sealed for a moment, and the
    target replaces it. If the command is killed, exactly one of the two stores accepts work; run
    it again to resume. Other users of this machine can read the arguments of a command: give a URL
    with a password by --from-env or --to-env.
    """
    with exit_on_error():
        out = CommandOutput(as_json=as_json, plain=plain)
        span = _grace(grace)
        source, target = _url("--from", from_url, from_env), _url("--to", to_url, to_env)
        if address_of(source) == address_of(target):
            raise InvalidArgument("--from and --to name the same store; give two different URLs")
        asyncio.run(_copy(out, source, target, span))
        sys.exit(Exit.OK)


def _url(option: str, given: str | None, variable: str | None) -> str:
    """Return the URL of one side: of the option, or of the variable that its twin names."""
    if (given is None) == (variable is None):
        raise InvalidArgument(
            f"{option} and {option}-env: give one of them, a URL or the name of a variable"
        )
    if given is not None:
        return given
    assert variable is not None
    url = os.environ.get(variable)
    if not url:
        raise InvalidArgument(f"{option}-env is {variable!r:.80}, and no such variable is set")
    return url


def _grace(text: str) -> timedelta:
    try:
        span = parse_duration(text, what="--grace")
    except ValueError as error:
        raise InvalidArgument(str(error)) from error
    if span > MAX_GRACE:
        raise InvalidArgument(f"--grace is {text}; give at most 24h")
    return span


async def _copy(out: CommandOutput, from_url: str, to_url: str, grace: timedelta) -> None:
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
    _report(out, copied, to_url)


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
    """Shows the steps of a transfer as consecutive progress bars."""

    def __init__(self, out: CommandOutput) -> None:
        self._out = out
        self._step: str | None = None
        self._shown = ExitStack()
        self._advance: Advance | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._shown.close()

    def __call__(self, step: str, more: int) -> None:
        """Report `more` items of `step`; a new step starts a new bar."""
        if step != self._step:
            self._shown.close()
            self._step = step
            self._advance = self._shown.enter_context(self._out.progress(step, None))
        if more and self._advance is not None:
            self._advance(more)


def _report(out: CommandOutput, copied: CopyResult | None, to_url: str) -> None:
    if copied is None:
        out.message(f"already copied; {address_of(to_url)} is in use")
        return
    if out.as_json:
        out.record(asdict(copied))
    else:
        for kind, held in copied.digests.items():
            out.line(f"{kind:<13} {held.rows:>10,}  {held.digest[:16]}")
    out.message(
        f"{copied.target} replaces {copied.source}: copied, compared and verified in "
        f"{copied.seconds:.1f} s, sealed for {copied.sealed_for:.1f} s"
    )
