"""`osgym completion`: commands and options completed by the shell."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

SHELLS = ("bash", "zsh", "fish")


@click.command()
@click.argument("shell", type=click.Choice(SHELLS))
def completion(shell: str) -> None:
    """Print a shell's completion script for commands and options.

    \b
    Examples:
      osgym completion bash > ~/.local/share/bash-completion/completions/osgym
      osgym completion zsh > "${fpath[1]}/_osgym"
      osgym completion fish > ~/.config/fish/completions/osgym.fish
    """
    kind = get_completion_class(shell)
    root = click.get_current_context().find_root()
    assert kind is not None
    click.echo(kind(root.command, {}, "osgym", "_OSGYM_COMPLETE").source())
