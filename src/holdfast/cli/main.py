"""The `holdfast` command: each subcommand is loaded only when it is called."""

from importlib import import_module
from typing import Final

import click

import holdfast

COMMANDS: Final = {
    "worker": "holdfast.cli.worker",
}


class Lazy(click.Group):
    """Finds a subcommand in the module of its name: help for one does not load the others."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = import_module(COMMANDS[cmd_name]).command
        return command


@click.group(cls=Lazy, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(holdfast.__version__, prog_name="holdfast")
def main() -> None:
    """Durable background jobs and schedules."""
