"""Asking the person at the terminal before something is done."""

import os
import select
import signal
import sys

import click

from outlast.errors import InvalidArgument


def confirm(question: str) -> bool:
    """Whether the answer is yes; InvalidArgument if there is nobody to ask."""
    loops = signal.signal(signal.SIGINT, signal.default_int_handler)  # a loop's waits for an await
    try:
        return _confirmed(question)
    except click.Abort:
        if sys.stdin.isatty():
            raise KeyboardInterrupt from None
        click.echo(err=True)
        raise InvalidArgument("nobody is there to answer; give --yes to do it unasked") from None
    finally:
        signal.signal(signal.SIGINT, loops)


def _confirmed(question: str) -> bool:
    if not sys.stdin.isatty():
        return click.confirm(question, err=True)
    click.echo(f"{question} [y/N]: ", nl=False, err=True)
    _wait_for_a_line()
    return click.confirm("", prompt_suffix="", show_default=False, err=True)


def _wait_for_a_line() -> None:
    """Until somebody has answered. A Ctrl-C just before a read would be heard only after it."""
    heard, told = os.pipe()
    os.set_blocking(told, False)
    before = signal.set_wakeup_fd(told, warn_on_full_buffer=False)
    try:
        select.select([sys.stdin, heard], [], [])
    finally:
        signal.set_wakeup_fd(before)
        os.close(heard)
        os.close(told)
