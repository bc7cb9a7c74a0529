"""`osgym token`: makes, lists and revokes tokens with a scope, in the file that the host agent reads."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import click

from osgym_host.cli.terminal import show_table
from osgym_host.http.tokens import TokensError, add_token, read_tokens, remove_token
from osgym_host.settings import SettingsError, load
from osgym_protocol.codes import TokenScope

EXAMPLES = """\b
Examples:
  osgym token new --scope run --name trainer-1 --file /etc/osgym/tokens
  osgym token new --scope observe --name wall-screen > wall-screen.token
  osgym token ls
  osgym token revoke trainer-1
  OSGYM_TOKENS_FILE=/etc/osgym/tokens osgym host serve
"""


def file_options(command: Any) -> Any:
    """Add `--file` and `--config`."""
    command = click.option(
        "--config",
        type=click.Path(path_type=Path, exists=True, dir_okay=False),
        help="Config file of the host agent, to take `tokens_file` from.",
    )(command)
    return click.option(
        "--file",
        "path",
        type=click.Path(path_type=Path, dir_okay=False),
        help="File of tokens; default OSGYM_TOKENS_FILE, or `tokens_file` of --config.",
    )(command)


@click.group(epilog=EXAMPLES)
def token() -> None:
    """Make, list and revoke tokens with a scope, in the file that the setting `tokens_file` names.

    \b
    observe  read state, live pictures, events, metrics, recorded episodes and the dashboard
    run      in addition, what a training script needs: episodes and access to their desktops
    admin    in addition, what operators do: drain, and act on desktops of others

    The file holds no tokens, only their SHA-256. A running host agent sees a change within a second or two.
    """


@token.command(
    epilog="\b\nExamples:\n"
    "  osgym token new --scope run --name trainer-1\n"
    "  osgym token new --scope observe --name wall --file /etc/osgym/tokens > wall.token\n"
    "\n\b\nExit codes: 0 done - 1 the name is taken, or the file cannot be used - 2 wrong usage.\n"
)
@click.option(
    "--scope", type=click.Choice([str(one) for one in TokenScope]), required=True, help="Rights of the token."
)
@click.option("--name", required=True, help="Name of its owner, which events and refusals say.")
@file_options
def new(scope: str, name: str, path: Path | None, config: Path | None) -> None:
    """Make a token, print it once, and add its line to the file, which is created if missing."""
    where = _file(path, config)
    try:
        made = add_token(where, TokenScope(scope), name)
    except TokensError as error:
        raise click.ClickException(str(error)) from error
    click.echo(made)
    click.echo(
        f"{where}: the token {name} has the scope {scope}. Only its hash is stored, "
        "so it cannot be shown again",
        err=True,
    )


@token.command("ls", epilog="\b\nExamples:\n  osgym token ls --file /etc/osgym/tokens\n")
@file_options
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def list_tokens(path: Path | None, config: Path | None, as_json: bool) -> None:
    """List the tokens of the file: their scopes, names, and the beginnings of their SHA-256."""
    where = _file(path, config)
    try:
        tokens, problems = read_tokens(where, trusted=False)
    except TokensError as error:
        raise click.ClickException(str(error)) from error
    if as_json:
        rows = [{"scope": str(t.scope), "name": t.name, "sha256": t.digest.hex()} for t in tokens]
        click.echo(json.dumps(rows, indent=2))
    else:
        texts = [(str(t.scope), t.name, f"{t.digest.hex()[:12]}…") for t in tokens]
        show_table(("SCOPE", "NAME", "SHA-256"), (), texts)
    for problem in problems:
        click.echo(f"{where}: {problem}", err=True)


@token.command(epilog="\b\nExamples:\n  osgym token revoke trainer-1\n")
@click.argument("name")
@file_options
def revoke(name: str, path: Path | None, config: Path | None) -> None:
    """Remove a token from the file; a running host agent then refuses it within a second or two."""
    where = _file(path, config)
    try:
        remove_token(where, name)
    except TokensError as error:
        raise click.ClickException(str(error)) from error
    click.echo(f"{where}: {name} is revoked", err=True)


def _file(path: Path | None, config: Path | None) -> Path:
    """Return the chosen file of tokens.

    Raises:
        click.ClickException: nobody said which, or the settings cannot be read.
    """
    if path is not None:
        return path
    try:
        found = load(config, os.environ).tokens_file
    except SettingsError as error:
        raise click.ClickException(str(error)) from error
    if found is None:
        raise click.UsageError(
            "no file of tokens is named: give --file FILE, set OSGYM_TOKENS_FILE, or give --config with "
            "`tokens_file`"
        )
    return found
