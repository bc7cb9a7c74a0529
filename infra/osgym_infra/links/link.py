"""Contract of a link to a host: commands, files, and the output of commands."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from osgym_infra.links.errors import CommandFailed

MOST_OUTPUT_BYTES = 256 * 1024
"""Bytes that are kept of the end of a command's output."""
MOST_LINE_BYTES = 4096

OutputListener = Callable[[str], None]
"""Receives each line that a command prints, without what could steer a terminal."""
DataListener = Callable[[bytes], None]
"""Receives the bytes that a command prints, as they come."""

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
    """Command that ended by itself.

    Attributes:
        exit_code: 0 to 255, or the negative number of the signal that ended it.
        output: Stdout and stderr as they came, the last `MOST_OUTPUT_BYTES`.
    """

    exit_code: int
    output: str


class HostLink(Protocol):
    """A connection to one host. All methods may raise `FleetHostError`; a cancelled one stops what it ran."""

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
        on_data: DataListener | None = None,
    ) -> CompletedCommand:
        """Run a command.

        Args:
            stdin: Input of the command; without, it is guarded: it ends when this connection does.

        Raises:
            CommandTimedOut: It ran for longer than `timeout_s`, and was stopped.
            ConnectionLost: Nobody knows how far it came.
        """
        ...

    async def close(self) -> None:
        """Close the connection; idempotent."""
        ...


class CollectedOutput:
    """End of a stream of bytes, and its lines; bounded, whatever a host sends."""

    def __init__(self, on_output: OutputListener | None = None, on_data: DataListener | None = None) -> None:
        self._on_output, self._on_data = on_output, on_data
        self._kept = bytearray()
        self._line = bytearray()

    def feed(self, data: bytes) -> None:
        self._kept += data
        if len(self._kept) > 2 * MOST_OUTPUT_BYTES:
            del self._kept[:-MOST_OUTPUT_BYTES]
        if self._on_data is not None:
            self._on_data(data)
        if self._on_output is None:
            return
        self._line += data
        *lines, rest = self._line.split(b"\n")
        self._line = rest[-MOST_LINE_BYTES:]
        for line in lines:
            if text := printable(line[:MOST_LINE_BYTES].decode(errors="replace")).strip():
                self._on_output(text)

    @property
    def text(self) -> str:
        """End of the output, without what could steer a terminal."""
        return printable(self._kept[-MOST_OUTPUT_BYTES:].decode(errors="replace"))


def printable(text: str) -> str:
    """Return a text without control characters other than line ends and tabs."""
    return "".join(c for c in text.replace("\r\n", "\n") if c in "\n\t" or c.isprintable())


def guarded(argv: Iterable[str]) -> list[str]:
    """Return a command that stops, with all that it started, when its stdin closes."""
    return ["sh", "-c", GUARD, "guard", *argv]


async def check(link: HostLink, argv: list[str], *, timeout_s: float = 60.0) -> str:
    """Return the output of a command that must succeed.

    Raises:
        CommandFailed: The command ended with another exit code than 0.
    """
    done = await link.run(argv, timeout_s=timeout_s)
    if done.exit_code != 0:
        raise CommandFailed(link.name, shlex.join(argv), done.exit_code, done.output)
    return done.output


WRITE = (
    'umask 077; mkdir -p -m 755 "$(dirname "$1")" && t=$(mktemp "$1.XXXXXX") && '
    'trap \'rm -f "$t"\' EXIT && cat > "$t" && chown "$3" "$t" && chmod "$2" "$t" && mv -f "$t" "$1"'
)


async def write(
    link: HostLink,
    path: str,
    data: bytes | Path,
    *,
    mode: str = "644",
    owner: str = "root:root",
    timeout_s: float = 60.0,
) -> None:
    """Write a file atomically; only root can read it before it has its mode.

    Raises:
        CommandFailed: It could not be written: the disk is full, or read-only.
    """
    argv = ["sh", "-c", WRITE, "write", path, mode, owner]
    done = await link.run(argv, timeout_s=timeout_s, stdin=data)
    if done.exit_code != 0:
        raise CommandFailed(link.name, f"write {path}", done.exit_code, done.output)
