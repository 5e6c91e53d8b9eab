"""Options of `outlast enqueue` about a key: how long it is held, and what if it is taken."""

from collections.abc import Callable
from functools import reduce
from typing import Any, Final, TypeVar

import click

from outlast.cli import values

Command = TypeVar("Command", bound=Callable[..., Any])

_OPTIONS: Final = (
    click.option("--key", help="Unique key: at most one job has it, ever if nothing else is said."),
    click.option("--bucket", help="With --key: narrows the key, such as to a day."),
    click.option(
        "--key-until",
        type=click.Choice(["forever", "end"]),
        help="With --key: `end` frees the key when its job has ended.",
    ),
    click.option(
        "--unique-for",
        callback=values.duration,
        help="With --key: frees the key so long after the creation of its job, such as 1h.",
    ),
    click.option(
        "--debounce",
        callback=values.duration,
        help="With --key: due after this time without a further enqueue; the last params count.",
    ),
    click.option(
        "--at-most",
        callback=values.duration,
        help="With --debounce: due so long after the first enqueue at the latest.",
    ),
    click.option(
        "--on-conflict",
        type=click.Choice(["existing", "reject", "replace"]),
        help="If the key is taken: print its job, fail, or give a job never claimed these params.",
    ),
)


def unique_options(function: Command) -> Command:
    """Add the options about a key to a command."""
    return reduce(lambda made, option: option(made), reversed(_OPTIONS), function)
