"""The `outlast` command; the module of a subcommand is imported when it is called."""

import sys
from importlib import import_module
from typing import Any, Final, NamedTuple

import click
from click.exceptions import NoArgsIsHelpError

import outlast
from outlast.core.printable import printable
from outlast.core.suggestion import did_you_mean


class Subcommand(NamedTuple):
    """Location of a subcommand, and its summary for the help text, which imports no module."""

    module: str
    name: str
    summary: str


COMMANDS: Final = {
    "demo": Subcommand("demo", "demo_command", "Take a short tour in a temporary store."),
    "init": Subcommand("init", "init_command", "Write a first app."),
    "worker": Subcommand("worker", "worker_command", "Run jobs until stopped."),
    "dev": Subcommand("dev", "dev_command", "Run a worker that restarts when the code changes."),
    "enqueue": Subcommand("enqueue", "enqueue_command", "Enqueue a job."),
    "jobs": Subcommand("jobs", "jobs_command", "List jobs."),
    "show": Subcommand("show", "show_command", "Show a job: runs, events, retries."),
    "logs": Subcommand("job_logs", "job_logs_command", "Print the output of a job."),
    "explain": Subcommand("explain", "explain_command", "Explain why a job waits."),
    "edit": Subcommand("move_edit", "edit", "Change a waiting job."),
    "move": Subcommand("move_edit", "move", "Move a waiting job within its queue."),
    "retry": Subcommand("cancel_retry", "retry", "Retry finished jobs."),
    "cancel": Subcommand("cancel_retry", "cancel", "Cancel jobs."),
    "queue": Subcommand("queue", "queue_group", "List, pause and configure queues."),
    "schedule": Subcommand("schedule", "schedule_group", "Manage schedules and their history."),
    "template": Subcommand("template", "template_group", "Manage stored job definitions."),
    "group": Subcommand("group", "group_group", "List, show and cancel groups of jobs."),
    "workers": Subcommand("workers", "workers_command", "List the workers."),
    "health": Subcommand("health", "health_command", "Ask a worker whether it is ready."),
    "top": Subcommand("top", "top_command", "Watch queues and running jobs live."),
    "check": Subcommand("check", "check_command", "Try waiting work against new code."),
    "doctor": Subcommand("doctor", "doctor_command", "Run health checks."),
    "verify": Subcommand("verify", "verify_command", "Check every job against the invariants."),
    "completion": Subcommand("completion", "completion_command", "Print shell completion."),
    "db": Subcommand("db", "db_group", "Create, inspect, copy and prune the store."),
}
"""The subcommands, in the order of the help text."""


class one_line_errors:  # noqa: N801 - a context manager, named as a function
    """Print a usage error of click as one line with the command to ask for help, and exit 2."""

    def __enter__(self) -> None:
        """Do nothing."""

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        """Print the error and exit; other errors pass through."""
        if isinstance(error, click.UsageError) and not isinstance(error, NoArgsIsHelpError):
            path = "outlast" if error.ctx is None else error.ctx.command_path
            why = " ".join(error.format_message().split()).rstrip(".")
            click.echo(printable(f"outlast: {why}; see `{path} --help`"), err=True)
            sys.exit(error.exit_code)


class LazyGroup(click.Group):
    """Imports the module of a subcommand when it is used; prints a usage error as one line."""

    def make_context(
        self,
        info_name: str | None,
        args: list[str],
        parent: click.Context | None = None,
        **extra: Any,
    ) -> click.Context:
        """Parse the options before the subcommand."""
        with one_line_errors():
            return super().make_context(info_name, args, parent, **extra)

    def invoke(self, ctx: click.Context) -> Any:
        """Parse and run the subcommand."""
        with one_line_errors():
            return super().invoke(ctx)

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """Return the names of the subcommands."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """Import and return a subcommand, or None if there is none of that name."""
        if cmd_name not in COMMANDS:
            return None
        found = COMMANDS[cmd_name]
        command: click.Command = getattr(import_module(f"outlast.cli.{found.module}"), found.name)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the subcommand that `args` name; suggest another if there is none."""
        name = args[0]
        if name not in COMMANDS and not ctx.resilient_parsing:
            hint = did_you_mean(name, COMMANDS)
            if ":" in name or name.endswith(".py"):
                hint = f"an app is given as `outlast worker {name}`, or by -a to other commands"
            ctx.fail(f"there is no command {name!r:.120}; {hint}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """Write the names and summaries of the subcommands."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, each.summary) for name, each in COMMANDS.items()])


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(outlast.__version__, prog_name="outlast")
def main() -> None:
    """Durable background jobs and schedules.

    Exit codes: 0 success, 1 a job failed or a check found a problem, 2 invalid arguments, 3 not
    found, 4 refused because of the object's state, 5 the store cannot be used, 70 internal error,
    75 try again, 130 interrupted.
    """
