"""The error of every grammar."""

from __future__ import annotations

from osgym_host.errors import OsgymHostError


class BadAction(OsgymHostError):
    """An action that cannot be understood; nothing was done.

    Attributes:
        action: What was given, shortened.
        why: What is wrong with it, one sentence.
        index: Its place in the list that was given, when it stood in one.
    """

    def __init__(self, action: object, why: str, index: int | None = None) -> None:
        """Keep the fields beside the message."""
        shown = action if isinstance(action, str) else repr(action)
        self.action = shown if len(shown) <= 200 else shown[:197] + "..."
        self.why = why
        self.index = index
        super().__init__(f"Cannot use the action {self.action!r}: {why}")

    def at(self, index: int) -> BadAction:
        """Return the same error with its place in the list."""
        return BadAction(self.action, self.why, index)
