"""Pauses within a typed text, at which the program that reads it is waited for.

Characters that only add to a text are typed as fast as the X server takes them: programs read them in their
order. Keys that act (Enter, Tab, Escape, Backspace, Delete) may change who reads, and may come too early: a
file dialog still completes the name, a shell still starts the program that shall read the next line,
LibreOffice carries out an Enter after the characters behind it. So in dialogs, terminals and LibreOffice such
a key is pressed when what stands before it was read, and what stands behind it is typed when it was acted on.
In other windows only the first such key is waited for: if it changed nothing but the text, as in an editor,
the others are typed like any character.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from osgym_protocol.keysyms import ACTING

LAST_OF_ONE_UNIT = "\uffff"
"""Last character that UTF-16 writes in one unit."""
READ_S, READ_LEAST_S, READ_TOTAL_S = 1.0, 0.01, 5.0
"""Bounds of the waits within a text: of one, of one after their sum is used up, and of their sum."""


@dataclass(frozen=True, slots=True)
class TextReader:
    """Program into which a text is typed.

    Attributes:
        look: Returns the active window, and whether it is a dialog, a terminal or LibreOffice's.
        wait: Waits, for at most the given seconds, until the keys pressed so far were read and processed.
    """

    look: Callable[[], tuple[int, bool]]
    wait: Callable[[float], None]


class TypingPace:
    """Waits within one text.

    Args:
        text: Whole text.
        reader: Program that reads it.
    """

    def __init__(self, text: str, reader: TextReader) -> None:
        self._text = text
        self._reader = reader
        self._at = 0
        self._window = 0
        """Active window at the last press of a key that acts."""
        self._is_plain = False
        """A key that acts has changed nothing but the text, so the others are not waited for."""
        self._left_s = READ_TOTAL_S

    def before_next(self) -> None:
        """Wait before the next character of the text if its reader must first process those before."""
        at, self._at = self._at, self._at + 1
        acted = at > 0 and self._text[at - 1] in ACTING
        # LibreOffice puts a character of two UTF-16 units before those that it still collects
        acts = self._text[at] in ACTING or self._text[at] > LAST_OF_ONE_UNIT
        if self._is_plain or not (acted or acts):
            return
        window, is_sensitive = self._reader.look()
        if acted or (is_sensitive and at > 0):
            before = self._window if acted else window
            self._wait()
            window, is_sensitive = self._reader.look()
            self._is_plain = acted and window == before and not is_sensitive
        self._window = window

    def _wait(self) -> None:
        began_s = time.monotonic()
        self._reader.wait(min(READ_S, max(self._left_s, READ_LEAST_S)))
        self._left_s -= time.monotonic() - began_s
