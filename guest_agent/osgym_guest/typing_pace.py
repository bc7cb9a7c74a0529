"""Where a text that is typed waits for the program that reads it.

Characters that only add to a text are typed as fast as the X server takes them: programs read them in their
order. Keys that act (Enter, Tab, Escape, Backspace, Delete) may change who reads, and may come too early: a
file dialog still completes the name, a shell still starts the program that shall read the next line. So the
first such key is pressed when what stands before it was read, and what stands behind it is typed when it was
acted on. If it changed nothing but the text, as in an editor, the others are not waited for, but for one that
ends the text. In dialogs and terminals every one is.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from osgym_protocol.keysyms import ACTING

READ_S, READ_LEAST_S, READ_TOTAL_S = 1.0, 0.01, 5.0
"""Bounds of the waits within a text: of one, of one when their sum is used up, and of their sum."""


class TypingPace:
    """Waits within one text.

    Args:
        text: the whole text.
        read: waits, for so many seconds at most, until the keys pressed so far were read; returns whether
            those behind may be meant for somebody else.
    """

    def __init__(self, text: str, read: Callable[[float], bool]) -> None:
        self._text = text
        self._read = read
        self._at = 0
        self._asks_always = True
        self._left_s = READ_TOTAL_S

    def before_next(self) -> None:
        """Wait, where it has to be, before the next character of the text is typed."""
        at, self._at = self._at, self._at + 1
        if at == 0:
            return
        acted, acts = self._text[at - 1] in ACTING, self._text[at] in ACTING
        is_end = at == len(self._text) - 1
        if not (acted or acts) or not (self._asks_always or (acts and is_end)):
            return
        began_s = time.monotonic()
        is_uncertain = self._read(min(READ_S, max(self._left_s, READ_LEAST_S)))
        self._left_s -= time.monotonic() - began_s
        if acted:
            self._asks_always = is_uncertain
