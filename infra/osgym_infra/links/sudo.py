"""Grant of root on this machine for an ordinary user. Pure.

Pulumi starts our provider in a session without a terminal. sudo keeps what `sudo -v` asked for per terminal
(sudoers(5), `timestamp_type`), so the provider's `sudo -n` is refused however often it was asked for before.
A line of sudoers that ends by itself (sudoers(5), `NOTAFTER`, since sudo 1.8.20) needs no terminal, no ticket
that runs out in the middle of a bake, and nobody to take it back.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime

FOLDER = "/etc/sudoers.d"
MOST_HOURS = 24
HOURS = 4
"""Long enough for the largest image from a slow mirror, virtual machine and all."""

COMMAND = "osgym fleet sudo"

_PLAIN = re.compile(r"[a-z_][a-z0-9_-]{0,31}")


def grant(user: str, uid: int | None = None, until: datetime | None = None) -> str:
    """Return the line of sudoers that lets a user become root without a password.

    A name that sudoers would read as something else (an alias, a group) is written as its number.

    Args:
        until: Time at which the grant ends by itself; None: never.
    """
    who = user if uid is None or _PLAIN.fullmatch(user) else f"#{uid}"
    end = f"NOTAFTER={until.astimezone(UTC):%Y%m%d%H%M%SZ} " if until else ""
    return f"{who} ALL=(root) {end}NOPASSWD: ALL"


def grant_file(uid: int) -> str:
    """Return the path of the grant, which is read last: the last matching line wins (sudoers(5))."""
    return f"{FOLDER}/zz-osgym-fleet-{uid}"


# $1: the file; $2: the line. A name with a dot is none that sudo reads (sudoers(5), `@includedir`).
WRITE = (
    'set -e; umask 227; rm -f "$1.new"; trap \'rm -f "$1.new"\' EXIT; '
    'printf "%s\\n" "# Written by osgym fleet sudo; ends by itself." "$2" > "$1.new"; '
    'visudo -cqf "$1.new"; mv -f "$1.new" "$1"'
)


def refusal(user: str, uid: int, said: str) -> str:
    """Return why root is needed and how to get it, for a user whom sudo refuses."""
    return (
        f"root is needed here, and sudo does not let {user} in without a password "
        f"({said or 'it gives no reason'}). `sudo -v` does not help: what it asks for is valid in its own "
        f"terminal only, and this runs in none. Run `{COMMAND}`: it asks for the password once, and writes "
        f"to {grant_file(uid)}, for {HOURS} hours: {grant(user, uid)}"
    )
