"""The error of every grammar."""

from __future__ import annotations

from osgym_host.errors import OsgymHostError
from osgym_protocol.limits import MAX_WHY_CHARS


class BadAction(OsgymHostError):
    """An action that cannot be understood; nothing was done.

    Attributes:
        action: What was given, shortened.
        why: What is wrong with it, one sentence; shortened where it cites what was given.
        index: Its place in the list that was given, when it stood in one.
    """

    def __init__(self, action: object, why: str, index: int | None = None) -> None:
        self.action = _short(action if isinstance(action, str) else repr(action), 200)
        self.why = _short(why, MAX_WHY_CHARS)
        self.index = index
        super().__init__(f"Cannot use the action {self.action!r}: {why}")

    def at(self, index: int) -> BadAction:
        """Return the same error with its place in the list."""
        return type(self)(self.action, self.why, index)


class NoAction(BadAction):
    """What is no text and no object, so that it is an action in no grammar."""


def _short(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 3] + "..."
