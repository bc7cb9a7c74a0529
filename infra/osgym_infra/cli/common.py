"""Exit codes, errors and small parsers that the commands share."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Callable, Sequence
from functools import wraps
from pathlib import Path
from typing import Any, ParamSpec

import click

from osgym_infra.errors import BadInput, CannotMeet, OsgymInfraError, RefreshFailed

P = ParamSpec("P")

CANNOT_MEET = 1
BAD_INPUT = 2


def exits(command: Callable[P, None]) -> Callable[P, None]:
    """Turn this distribution's errors into a message and an exit code: 1 cannot be met, 2 bad input.

    With `as_json` among the command's arguments the message is a JSON object on stdout.
    """

    @wraps(command)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            command(*args, **kwargs)
        except OsgymInfraError as error:
            if kwargs.get("as_json"):
                click.echo(json.dumps({"error": described(error)}, indent=2))
            else:
                click.echo(f"{click.get_current_context().info_name}: {error}", err=True)
            sys.exit(BAD_INPUT if isinstance(error, BadInput) else CANNOT_MEET)

    return run


def described(error: OsgymInfraError) -> dict[str, Any]:
    """Return an error as the object that programs get."""
    match error:
        case BadInput():
            return {"code": "bad_input", "field": error.field, "problem": error.problem, "fits": error.fits}
        case CannotMeet():
            return {
                "code": "cannot_meet", "field": error.field, "problem": error.problem, "fits": error.fits,
                "details": error.details,
            }  # fmt: skip
        case RefreshFailed():
            return {"code": "refresh_failed", "provider": error.provider, "problem": str(error)}
    return {"code": "error", "problem": str(error)}


def rates(pairs: Sequence[str]) -> dict[str, float]:
    """Parse `EUR=1.1` pairs to USD per unit."""
    found: dict[str, float] = {}
    for pair in pairs:
        name, _, value = pair.partition("=")
        try:
            rate = float(value)
        except ValueError:
            rate = 0.0
        if not name.isalpha() or not 0 < rate < 1e6:
            raise BadInput("--rate", f"{pair!r}", "CURRENCY=USD, e.g. EUR=1.10")
        found[name.upper()] = rate
    return found


def quotas(pairs: Sequence[str]) -> dict[str, int]:
    """Parse `r8i.24xlarge=4` pairs to numbers of hosts by type."""
    found: dict[str, int] = {}
    for pair in pairs:
        name, _, value = pair.partition("=")
        if not name or not value.isdecimal():
            raise BadInput("--max-hosts", f"{pair!r}", "TYPE=NUMBER, e.g. r8i.24xlarge=4")
        found[name] = int(value)
    return found


def write_whole(path: Path, text: str, mode: int) -> None:
    """Write a file atomically, with its mode from the start.

    Raises:
        OsgymInfraError: It cannot be written; a former file stays as it was.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")  # mode 0600
        made = Path(name)
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            made.chmod(mode)
            made.replace(path)
        finally:
            made.unlink(missing_ok=True)
    except OSError as error:
        raise OsgymInfraError(f"{path} cannot be written: {error.strerror}") from error
