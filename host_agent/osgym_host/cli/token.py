"""`osgym token`: tokens with a scope, in the file that a host agent's setting `tokens_file` names."""

from __future__ import annotations

from pathlib import Path

import click

from osgym_host.api.tokens import OBSERVE_RATE, TokenFileError, add, load, write
from osgym_host.cli.client import show
from osgym_host.core.scopes import AccessScope

_SCOPES = click.Choice([scope.word for scope in AccessScope])
_file = click.option(
    "--file", "path", required=True, envvar="OSGYM_TOKENS_FILE",
    type=click.Path(path_type=Path, dir_okay=False),
    help="The host agent's tokens_file; default OSGYM_TOKENS_FILE.",
)  # fmt: skip


@click.group(short_help="Give and take back tokens that may look, run desktops or operate.")
def token() -> None:
    """Give and take back tokens with a scope.

    \b
    observe  look: desktops, episodes, events, figures; it changes nothing
    run      what a training script needs: lease, step, evaluate, branch
    admin    what an operator does besides: take over, empty the host

    The file has their SHA-256 only. A running host agent sees a change within a second:

    \b
    osgym serve --set tokens_file=/etc/osgym/tokens
    osgym token new --file /etc/osgym/tokens --scope run trainer-1
    OSGYM_TOKEN=… python train.py

    The setting `token` goes on to be one that may do everything.
    """


@token.command()
@_file
@click.option("--scope", type=_SCOPES, default=AccessScope.RUN.word, show_default=True)
@click.option("--rate", type=click.FloatRange(0), help="Calls per second. [default: observe 100, others any]")
@click.argument("name")
def new(path: Path, scope: str, rate: float | None, name: str) -> None:
    """Make a token and print it, once: the file keeps only what recognises it.

    \b
    osgym token new --file tokens --scope observe wall-screen
    """
    wanted = AccessScope.of(scope)
    default = OBSERVE_RATE if wanted is AccessScope.OBSERVE else 0.0
    try:
        click.echo(add(path, name, wanted, default if rate is None else rate))
    except TokenFileError as error:
        raise click.ClickException(str(error)) from error


@token.command(name="list")
@_file
def list_(path: Path) -> None:
    """List the tokens of a file by their names."""
    try:
        lines, _ = load(path)
    except TokenFileError as error:
        raise click.ClickException(str(error)) from error
    rows = [(line.name, line.scope.word, f"{line.rate:g}/s" if line.rate else "-") for line in lines or []]
    show(("NAME", "SCOPE"), ("RATE",), rows)


@token.command()
@_file
@click.argument("name")
def revoke(path: Path, name: str) -> None:
    """Take a token back; a running host agent refuses it within a second."""
    try:
        lines, _ = load(path)
        kept = [line for line in lines or [] if line.name != name]
        if len(kept) == len(lines or []):
            raise click.ClickException(f"{path} has no token named {name} (`osgym token list`)")
        write(path, kept)
    except TokenFileError as error:
        raise click.ClickException(str(error)) from error
