"""Confirmation prompt before a destructive command."""

import os
import select
import signal
import sys

import click

from outlast.core.printable import printable
from outlast.errors import InvalidArgument


def confirm(question: str) -> bool:
    """Ask on stderr and return True if the answer is yes.

    Raises:
        InvalidArgument: Standard input has no answer, as in a script or a cron job.
        KeyboardInterrupt: The user pressed Ctrl-C.
    """
    # The handler of asyncio takes effect at the next await; the prompt has none.
    loop_handler = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        return _confirmed(printable(question))
    except click.Abort:
        if sys.stdin.isatty():
            raise KeyboardInterrupt from None
        click.echo(err=True)
        raise InvalidArgument(
            "confirmation needed, but standard input has no answer; give --yes to skip the question"
        ) from None
    finally:
        signal.signal(signal.SIGINT, loop_handler)


def _confirmed(question: str) -> bool:
    if not sys.stdin.isatty():
        return click.confirm(question, err=True)
    click.echo(f"{question} [y/N]: ", nl=False, err=True)
    _wait_for_input()
    return click.confirm("", prompt_suffix="", show_default=False, err=True)


def _wait_for_input() -> None:
    """Block until standard input is readable or a signal arrives.

    Without the wake-up pipe a Ctrl-C just before the blocking read takes effect only after it.
    """
    wakeup_reader, wakeup_writer = os.pipe()
    os.set_blocking(wakeup_writer, False)
    before = signal.set_wakeup_fd(wakeup_writer, warn_on_full_buffer=False)
    try:
        select.select([sys.stdin, wakeup_reader], [], [])
    finally:
        signal.set_wakeup_fd(before)
        os.close(wakeup_reader)
        os.close(wakeup_writer)
