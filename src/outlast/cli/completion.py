"""`outlast completion`: the script that completes commands and options in a shell."""

import click
from click.shell_completion import get_completion_class

SHELLS = ("bash", "zsh", "fish")


@click.command("completion")
@click.argument("shell", type=click.Choice(SHELLS))
def completion_command(shell: str) -> None:
    """Print the completion script of SHELL.

    For bash: `outlast completion bash > ~/.outlast-completion`, then load it in ~/.bashrc with
    `source ~/.outlast-completion`. For zsh use ~/.zshrc, for fish
    ~/.config/fish/completions/outlast.fish.
    """
    made = get_completion_class(shell)
    root = click.get_current_context().find_root().command
    if made is not None:
        click.echo(made(root, {}, "outlast", "_OUTLAST_COMPLETE").source())
