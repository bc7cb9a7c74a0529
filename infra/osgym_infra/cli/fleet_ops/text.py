"""Bounded lines of hosts' output that cannot steer a terminal. Pure."""

from __future__ import annotations

import codecs
from collections.abc import Callable

MOST_LINE_CHARS = 4096
MOST_CELL_CHARS = 160
MOST_SHOWN_LINES = 2000
"""Of one host, unless its lines are followed."""

LineListener = Callable[[str], None]


def escaped(text: str, most: int = MOST_CELL_CHARS) -> str:
    """Return one line of text whose control characters, bidirectional ones too, are shown as `\\x1b`."""
    shown = []
    for char in text[: most + 1]:
        if char.isprintable():
            shown.append(char)
        elif char == "\t":
            shown.append("    ")
        else:
            shown.append(f"\\x{ord(char):02x}" if ord(char) < 256 else f"\\u{ord(char):04x}")
    line = "".join(shown)
    return line if len(text) <= most and len(line) <= 4 * most else line[:most] + "…"


class Lines:
    """Splitter of a stream of bytes into lines for a listener; bounded, whatever a host sends.

    Args:
        most: So many lines are passed on; the rest is counted in `left_out`. None: all of them.
    """

    def __init__(self, listener: LineListener, most: int | None = MOST_SHOWN_LINES) -> None:
        self._listener, self._most = listener, most
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._rest = ""
        self._too_long = False
        self._passed = 0
        self.left_out = 0
        self.skipped: tuple[str, ...] = ()
        """Lines that begin so are the way's own, not the command's."""

    def feed(self, data: bytes) -> None:
        *lines, rest = (self._rest + self._decoder.decode(data)).split("\n")
        for line in lines:
            if self._too_long:  # its beginning was passed on already
                self._too_long = False
                continue
            self._pass_on(line)
        if len(rest) > MOST_LINE_CHARS:
            if not self._too_long:
                self._pass_on(rest)
            self._too_long, rest = True, ""
        self._rest = rest

    def end(self) -> None:
        """Pass on what had no line end."""
        rest, self._rest = self._rest + self._decoder.decode(b"", final=True), ""
        if rest and not self._too_long:
            self._pass_on(rest)

    def _pass_on(self, line: str) -> None:
        if self.skipped and line.startswith(self.skipped):
            return
        if self._most is not None and self._passed >= self._most:
            self.left_out += 1
            return
        self._passed += 1
        self._listener(escaped(line.removesuffix("\r"), MOST_LINE_CHARS))
