"""The command `tidegraph completion`."""

from __future__ import annotations

import sys

import click

from tidegraph.cli.terminal import Command

__all__ = ["completion"]


@click.command(cls=Command)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print the script that lets a shell complete commands, options and data sets.

    \b
      bash   eval "$(tidegraph completion bash)" in ~/.bashrc
      zsh    eval "$(tidegraph completion zsh)" in ~/.zshrc, after compinit
      fish   tidegraph completion fish > ~/.config/fish/completions/tidegraph.fish
    """
    from click.shell_completion import get_completion_class

    kind = get_completion_class(shell)
    assert kind is not None
    click.echo(kind(ctx.find_root().command, {}, "tidegraph", "_TIDEGRAPH_COMPLETE").source())
    if sys.stdout.isatty():  # a person reads it, not a shell
        click.echo("tidegraph completion --help shows where this belongs", err=True)
