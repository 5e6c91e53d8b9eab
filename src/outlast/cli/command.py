"""Command wrapper: resolves the app, maps errors to exit codes and prints them as one line."""

import asyncio
import io
import os
import re
import sys
from collections.abc import Awaitable, Callable
from datetime import timedelta
from enum import IntEnum
from functools import wraps
from shlex import quote
from typing import Any, Final, NoReturn

import click

from outlast.app import Outlast
from outlast.cli.app_loader import load_app
from outlast.cli.output import CommandOutput
from outlast.cli.target import Target, find, find_both
from outlast.core.address import shown_address
from outlast.core.printable import printable
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

TRACEBACK_VARIABLE: Final = "OUTLAST_TRACEBACK"
"""Environment variable that makes a command end an internal error with its traceback."""

CLICK_EXITS: Final = (click.ClickException, click.Abort, click.exceptions.Exit)
"""Exceptions with which click itself ends a command."""

MAX_ERROR_LINE: Final = 500
"""Characters of an internal error that are shown."""


class Exit(IntEnum):
    """Exit codes of the command line."""

    OK = 0
    FAILED = 1  # the job failed, or a check found a problem
    USAGE = 2  # invalid arguments, or no app given
    NOT_FOUND = 3  # no such job, queue, type, template or group
    REFUSED = 4  # the object's state does not allow the operation
    UNREACHABLE = 5  # the store is missing, damaged, full, or not an Outlast store
    INTERNAL = 70  # a defect, or a stored record that cannot be read (EX_SOFTWARE)
    TRY_AGAIN = 75  # the store or the job is busy (EX_TEMPFAIL)
    INTERRUPTED = 130  # Ctrl-C: 128 + SIGINT


CODES: Final[tuple[tuple[type[Exception], Exit], ...]] = (
    (LookupError, Exit.NOT_FOUND),  # base class of every "not found" error
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
"""Exit code per error class; the first match wins."""


class CommandContext:
    """What a command works with: the target, the app and the output."""

    def __init__(self, where: Target, out: CommandOutput) -> None:
        self.where = where
        self.out = out
        self.app: Outlast = _app(where)
        self.registry = self.app.registry
        if where.app is not None and where.url is not None and where.url.source == "--url":
            self.app = Outlast(where.url.value)  # of the app only the code is used

    @property
    def target_option(self) -> str:
        """The option that names the same target, to be pasted; empty if it is found without."""
        app, url = self.where.app, self.where.url
        if app is not None and app.source == "--app":
            return f" -a {app.value}"
        if url is not None and url.source == "--url":
            return f" --url {quote(shown_address(url.value))}"
        return ""

    def with_target(self, text: str) -> str:
        """Return the text with the target in each `outlast …` command, so that it can be pasted."""
        return re.sub(r"`(outlast [^`]*)`", self._with_target, text)

    def _with_target(self, found: re.Match[str]) -> str:
        option = self.target_option
        if self.where.app is None and found[1].startswith("outlast worker"):
            option = " -a module:attribute"  # a worker needs the code, not only the store
        return f"`{found[1]}{option}`"

    @property
    def knows_types(self) -> bool:
        """Whether an app was given, not only the URL of a store."""
        return self.where.app is not None

    @property
    def retention(self) -> timedelta | None:
        """How long the app's workers keep ended jobs; None: for ever, or only a store is known."""
        return self.app.settings.retention if self.knows_types else None

    def require_types(self) -> None:
        """Raise InvalidType if only a store was given, so job types are unknown."""
        if not self.knows_types:
            raise InvalidType(
                "this command needs an app with its job types, not only a store; give --app "
                "module:attribute, or set OUTLAST_APP"
            )


Step = Callable[..., Awaitable[int | None]]


def command(
    name: str, *, creates: bool = False, needs_store: bool = True, takes_both: bool = False
) -> Callable[[Step], click.Command]:
    """Make a click command out of `async def step(ctx, **options)`.

    Args:
        name: Name of the command.
        creates: The command may create the store. Otherwise a missing store is an error.
        needs_store: If False, the command of an app also runs while there is no store.
        takes_both: The command takes the code of `--app` and the store of `--url` together.
    """

    def decorate(step: Step) -> click.Command:
        @wraps(step)
        def run(
            app: str | None, url: str | None, as_json: bool, plain: bool, **options: Any
        ) -> None:
            with exit_on_error():
                where = find_both(app, url) if takes_both else find(app, url)
                ctx = CommandContext(where.enter(), CommandOutput(as_json=as_json, plain=plain))
                sys.exit(
                    asyncio.run(_at(ctx, step, options, creates=creates, needs_store=needs_store))
                    or Exit.OK
                )

        made: click.Command = click.command(name)(_common(run))
        return made

    return decorate


class exit_on_error:  # noqa: N801 - a context manager, named as a function
    """Exit with one line on stderr and the exit code of the error, without a traceback."""

    def __enter__(self) -> None:
        """Let characters that the terminal's encoding lacks be written as escapes."""
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, io.TextIOWrapper):
                stream.reconfigure(errors="backslashreplace")

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        """Print the error and exit."""
        if isinstance(error, OutlastError):
            fail(" ".join(str(error).split()), _code(error))
        if isinstance(error, KeyboardInterrupt):
            fail("interrupted", Exit.INTERRUPTED)
        if isinstance(error, BrokenPipeError):  # `outlast jobs | head`
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            sys.exit(Exit.OK)
        if isinstance(error, Exception) and not isinstance(error, CLICK_EXITS):
            _fail_unexpectedly(error)


def fail(why: str, code: Exit) -> NoReturn:
    """Print `why` on stderr and exit with `code`."""
    click.echo(printable(f"outlast: {why}"), err=True)
    sys.exit(code)


def _fail_unexpectedly(error: Exception) -> None:
    """Exit on an error that is not Outlast's own, unless its traceback is wanted."""
    if os.environ.get(TRACEBACK_VARIABLE):
        return
    what = " ".join(f"{type(error).__name__}: {error}".split())
    fail(
        f"internal error: {what[:MAX_ERROR_LINE]}; set {TRACEBACK_VARIABLE}=1 to see where, and "
        "check the store with `outlast verify`",
        Exit.INTERNAL,
    )


def _code(error: OutlastError) -> Exit:
    return next(code for kind, code in CODES if isinstance(error, kind))


async def _at(
    ctx: CommandContext, step: Step, options: dict[str, Any], *, creates: bool, needs_store: bool
) -> int | None:
    if not creates and not ctx.app.store.exists():
        if ctx.knows_types and not needs_store:
            return await step(ctx, **options)
        where = shown_address(ctx.app.url or "")
        raise StoreMissing(
            f"there is no store at {where}; create it with `outlast db "
            f"migrate{ctx.target_option}`, or name another one with --url"
        )
    async with ctx.app:
        return await step(ctx, **options)


def _app(where: Target) -> Outlast:
    if where.app is not None:
        return load_app(where.app.value)
    if where.url is not None:
        return Outlast(where.url.value)
    raise InvalidType(
        "no app given; use --app module:attribute (or --url for a store alone), set OUTLAST_APP, "
        'or write app = "module:attribute" under [tool.outlast] in pyproject.toml'
    )


def output_command(name: str) -> Callable[[Callable[..., None]], click.Command]:
    """Make a click command out of `def step(out, **options)`, which needs no app and no store."""

    def decorate(step: Callable[..., None]) -> click.Command:
        @wraps(step)
        def run(as_json: bool, plain: bool, **options: Any) -> None:
            with exit_on_error():
                step(CommandOutput(as_json=as_json, plain=plain), **options)

        made: click.Command = click.command(name)(_output_options(run))
        return made

    return decorate


def _common(function: Callable[..., None]) -> Callable[..., None]:
    for option in (
        click.option("--url", help="URL of a store, without an app: sqlite:///jobs.db."),
        click.option("-a", "--app", help="The app, as module:attribute."),
    ):
        function = option(function)
    return _output_options(function)


def _output_options(function: Callable[..., None]) -> Callable[..., None]:
    for option in (
        click.option("--plain", is_flag=True, help="No colours and no progress bar."),
        click.option(
            "--json", "as_json", is_flag=True, help="JSON on stdout, one object per line."
        ),
    ):
        function = option(function)
    return function
