"""Collects what a command prints: the end of it, and each line for whoever listens."""

from __future__ import annotations

from osgym_infra.hosts.transport import MOST_OUTPUT_BYTES, OutputListener

MOST_LINE_BYTES = 4096


class CollectedOutput:
    """The end of a stream of bytes, and its lines. Bounded, whatever a host sends."""

    def __init__(self, on_output: OutputListener | None = None) -> None:
        self._on_output = on_output
        self._kept = bytearray()
        self._line = bytearray()

    def feed(self, data: bytes) -> None:
        """Take the next bytes."""
        self._kept += data
        if len(self._kept) > 2 * MOST_OUTPUT_BYTES:
            del self._kept[:-MOST_OUTPUT_BYTES]
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
        """The end of it, without what could steer a terminal."""
        return printable(self._kept[-MOST_OUTPUT_BYTES:].decode(errors="replace"))


def printable(text: str) -> str:
    """Text without control characters other than line ends and tabs."""
    return "".join(c for c in text.replace("\r\n", "\n") if c in "\n\t" or c.isprintable())
