"""How commands and files reach a host: what `ssh` and `local` have in common."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from osgym_infra.hosts.errors import CommandFailed

MOST_OUTPUT_BYTES = 256 * 1024
"""Of a command's output only so much of its end is kept."""

LOCAL = "local"
"""The address that means this machine, without ssh."""

OutputListener = Callable[[str], None]
"""Gets each line that a command prints, as it comes."""

# Runs "$@" in a process group of its own, and stops that when our end of stdin closes: because we were
# interrupted or killed, or because the connection broke. A bootstrap never runs on without us.
GUARD = (
    'exec 3<&0; setsid "$@" </dev/null & p=$!; '
    "( while read -r _; do :; done <&3; kill -TERM -$p; sleep 10; kill -KILL -$p ) "
    ">/dev/null 2>&1 & g=$!; "
    "exec 3<&-; wait $p; code=$?; kill $g 2>/dev/null; exit $code"
)


@dataclass(frozen=True, slots=True)
class CompletedCommand:
    """A command that came to its end.

    Attributes:
        exit_code: 0 to 255, or the negative number of the signal that ended it.
        output: stdout and stderr as they came, the last `MOST_OUTPUT_BYTES`.
    """

    exit_code: int
    output: str


class Transport(Protocol):
    """A connection to one host. All methods may raise `HostError`; a cancelled one stops what it ran."""

    @property
    def name(self) -> str:
        """The host as users know it."""
        ...

    async def connect(self) -> None:
        """Open the connection, again after it broke too."""
        ...

    async def run(
        self,
        argv: list[str],
        *,
        timeout_s: float,
        stdin: bytes | Path | None = None,
        on_output: OutputListener | None = None,
    ) -> CompletedCommand:
        """Run a command as root.

        Args:
            stdin: what it reads; without, it is guarded: it ends when this connection does.

        Raises:
            CommandTimedOut: it ran for longer than `timeout_s`, and was stopped.
            ConnectionLost: nobody knows how far it came.
        """
        ...

    async def close(self) -> None:
        """Close the connection; idempotent."""
        ...


async def check(transport: Transport, argv: list[str], *, timeout_s: float = 60.0) -> str:
    """Return the output of a command that must succeed.

    Raises:
        CommandFailed: the command ended with another exit code than 0.
    """
    done = await transport.run(argv, timeout_s=timeout_s)
    if done.exit_code != 0:
        raise CommandFailed(transport.name, shlex.join(argv), done.exit_code, done.output)
    return done.output


WRITE = (
    'umask 077; mkdir -p -m 755 "$(dirname "$1")" && t=$(mktemp "$1.XXXXXX") && '
    'trap \'rm -f "$t"\' EXIT && cat > "$t" && chown "$3" "$t" && chmod "$2" "$t" && mv -f "$t" "$1"'
)


async def write(
    transport: Transport,
    path: str,
    data: bytes | Path,
    *,
    mode: str = "644",
    owner: str = "root:root",
    timeout_s: float = 60.0,
) -> None:
    """Write a file, atomically; nobody but root can read it before it has its mode.

    Raises:
        CommandFailed: it could not be written: the disk is full, or read-only.
    """
    argv = ["sh", "-c", WRITE, "write", path, mode, owner]
    done = await transport.run(argv, timeout_s=timeout_s, stdin=data)
    if done.exit_code != 0:
        raise CommandFailed(transport.name, f"write {path}", done.exit_code, done.output)
