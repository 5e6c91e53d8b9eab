"""Asking the person at the terminal before something is done."""

import signal
import sys

import click

from holdfast.errors import InvalidJob


def agreed(question: str) -> bool:
    """Whether the answer is yes; InvalidJob if there is nobody to ask."""
    loops = signal.signal(signal.SIGINT, signal.default_int_handler)  # a loop's waits for an await
    try:
        return click.confirm(question, err=True)
    except click.Abort:
        if sys.stdin.isatty():
            raise KeyboardInterrupt from None
        click.echo(err=True)
        raise InvalidJob("nobody is there to answer; give --yes to do it unasked") from None
    finally:
        signal.signal(signal.SIGINT, loops)
