"""The `outlast` command: each subcommand is loaded only when it is called."""

from importlib import import_module
from typing import Final, NamedTuple

import click

import outlast


class Subcommand(NamedTuple):
    """Where a subcommand is, and what it does in a few words, so that help need not load it."""

    module: str
    name: str
    does: str


COMMANDS: Final = {
    "demo": Subcommand("demo", "command", "A short tour, on a store of its own."),
    "init": Subcommand("init", "command", "Write a first app to start from."),
    "worker": Subcommand("worker", "command", "Run jobs until told to stop."),
    "dev": Subcommand("dev", "command", "Run a worker that starts afresh when the code changes."),
    "enqueue": Subcommand("enqueue", "command", "Store a job, checked before it is written."),
    "jobs": Subcommand("jobs", "command", "List jobs."),
    "show": Subcommand("show", "command", "Show a job: runs, events, lineage."),
    "logs": Subcommand("job_logs", "command", "Print what a job wrote."),
    "explain": Subcommand("explain", "command", "Say why a job waits."),
    "edit": Subcommand("move_edit", "edit", "Change a job that waits."),
    "move": Subcommand("move_edit", "move", "Move a waiting job."),
    "retry": Subcommand("cancel_retry", "retry", "Run finished jobs again."),
    "cancel": Subcommand("cancel_retry", "cancel", "Cancel jobs."),
    "queue": Subcommand("queue", "command", "Queues: order, pause, limits."),
    "schedule": Subcommand("schedule", "command", "What runs when, and what became of it."),
    "template": Subcommand("template", "command", "Stored job definitions."),
    "group": Subcommand("group", "command", "Jobs watched together."),
    "top": Subcommand("top", "command", "Watch the store, live."),
    "doctor": Subcommand("doctor", "command", "Check everything, and say how to mend it."),
    "verify": Subcommand("verify", "command", "Prove the store's own history."),
    "db": Subcommand("db", "command", "Create, look at and prune the store."),
}
"""In the order in which people need them."""


class LazyGroup(click.Group):
    """Finds a subcommand in its module: help for one does not load the others."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in COMMANDS:
            return None
        at = COMMANDS[cmd_name]
        command: click.Command = getattr(import_module(f"outlast.cli.{at.module}"), at.name)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        with formatter.section("Commands"):
            formatter.write_dl([(name, at.does) for name, at in COMMANDS.items()])


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(outlast.__version__, prog_name="outlast")
def main() -> None:
    """Durable background jobs and schedules.

    Exit codes: 0 fine, 1 the work failed or a check found something, 2 the command cannot be
    understood, 3 not found, 4 refused by its state, 5 the store cannot be used, 75 try again,
    130 interrupted.
    """
