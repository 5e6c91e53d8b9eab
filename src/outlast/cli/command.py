"""What every command shares: finding the app, one line for an error, an exit code for each kind."""

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable
from enum import IntEnum
from functools import wraps
from typing import Any, Final, NoReturn

import click

from outlast.app import Outlast
from outlast.cli.app_loader import load_app
from outlast.cli.output import Output
from outlast.cli.target import Target, find
from outlast.errors import (
    CallerError,
    DuplicateJob,
    InvalidArgument,
    InvalidType,
    JobNotSucceeded,
    OutlastError,
    StoreBusy,
    StoreMissing,
    StoreSealed,
    TransitionRefused,
    WaitTimeout,
)
from outlast.store.open import without_password


class Exit(IntEnum):
    """What a script can tell from how a command ended."""

    OK = 0
    FAILED = 1  # the work failed, or a check found something
    USAGE = 2  # the command cannot be understood, or names no app
    NOT_FOUND = 3  # no such job, queue, type, template or group
    REFUSED = 4  # its state does not allow that
    UNREACHABLE = 5  # the store is missing, broken, foreign or full
    TRY_AGAIN = 75  # try again: somebody else has it now
    INTERRUPTED = 130  # by Ctrl-C, as shells say it


CODES: Final[tuple[tuple[type[Exception], Exit], ...]] = (
    (LookupError, Exit.NOT_FOUND),  # as every error of ours is that says so
    (JobNotSucceeded, Exit.FAILED),
    (WaitTimeout, Exit.TRY_AGAIN),
    (StoreBusy, Exit.TRY_AGAIN),
    (StoreSealed, Exit.TRY_AGAIN),
    (TransitionRefused, Exit.REFUSED),
    (DuplicateJob, Exit.REFUSED),
    (InvalidArgument, Exit.USAGE),
    (InvalidType, Exit.USAGE),
    (CallerError, Exit.REFUSED),
    (OutlastError, Exit.UNREACHABLE),
)
"""The first that fits counts."""


class CommandContext:
    """What a command works with: the app it is about, and where its words go."""

    def __init__(self, where: Target, out: Output) -> None:
        self.where = where
        self.out = out
        self.app: Outlast = _app(where)

    @property
    def knows_types(self) -> bool:
        """Whether there is an app with its code, not only the address of a store."""
        return self.where.app is not None

    def require_types(self) -> None:
        if not self.knows_types:
            raise InvalidType(
                "this needs the app with its job types, not only a store; give --app "
                "module:attribute, or set OUTLAST_APP"
            )


Step = Callable[..., Awaitable[int | None]]


def verb(name: str, *, creates: bool = False) -> Callable[[Step], click.Command]:
    """A command out of `async def step(desk, **options)`; `creates`: the store may be new."""

    def decorate(step: Step) -> click.Command:
        @wraps(step)
        def run(
            app: str | None, url: str | None, as_json: bool, plain: bool, **options: Any
        ) -> None:
            with exit_on_error():
                desk = CommandContext(find(app, url), Output(as_json=as_json, plain=plain))
                sys.exit(asyncio.run(_at(desk, step, options, creates=creates)) or Exit.OK)

        command: click.Command = click.command(name)(_common(run))
        return command

    return decorate


class exit_on_error:  # noqa: N801 - reads as what it does
    """An error of ours ends the command with one line and its code, never with a traceback."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        if isinstance(error, OutlastError):
            fail(" ".join(str(error).split()), _code(error))
        if isinstance(error, KeyboardInterrupt):
            fail("interrupted", Exit.INTERRUPTED)
        if isinstance(error, BrokenPipeError):  # as of `outlast jobs | head`
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            sys.exit(Exit.OK)


def fail(why: str, code: Exit) -> NoReturn:
    click.echo(f"outlast: {why}", err=True)
    sys.exit(code)


def _code(error: OutlastError) -> Exit:
    return next(code for kind, code in CODES if isinstance(error, kind))


async def _at(
    desk: CommandContext, step: Step, options: dict[str, Any], *, creates: bool
) -> int | None:
    if not creates and not desk.app.store.exists():
        raise StoreMissing(
            f"there is no store at {without_password(desk.app.url)}; create it: outlast db "
            "migrate, or name another with --url"
        )
    async with desk.app:
        return await step(desk, **options)


def _app(where: Target) -> Outlast:
    if where.app is not None:
        return load_app(where.app.value)
    if where.url is not None:
        return Outlast(where.url.value)
    raise InvalidType(
        "which app? give --app module:attribute (or --url for a store alone), set OUTLAST_APP, "
        'or write app = "module:attribute" under [tool.outlast] in pyproject.toml'
    )


def _common(function: Callable[..., None]) -> Callable[..., None]:
    for option in (
        click.option("--plain", is_flag=True, help="No colour, no lines, no progress."),
        click.option("--json", "as_json", is_flag=True, help="JSON on stdout, one object a line."),
        click.option("--url", help="A store alone, such as sqlite:///jobs.db."),
        click.option("-a", "--app", help="The app, as module:attribute."),
    ):
        function = option(function)
    return function
