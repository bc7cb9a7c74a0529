"""State that the handlers share: the desktop, and the objects that each keeps between calls."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, cast

from osgym_guest.http import bad
from osgym_guest.osworld.context import OsworldContext
from osgym_protocol.limits import MAX_PATH_CHARS

T = TypeVar("T")


class ReachContext:
    """State shared by the reach endpoints. `desktop` has the session and its programs."""

    def __init__(self, desktop: OsworldContext):
        self.desktop = desktop
        self._kept: dict[type[Any], Any] = {}

    def kept(self, kind: type[T], make: Callable[[], T]) -> T:
        """Return the one object of a kind, made at the first call."""
        if kind not in self._kept:
            self._kept[kind] = make()
        return cast("T", self._kept[kind])

    def path(self, text: object) -> Path:
        """Return a path as the client wrote it, with nothing expanded but a leading ``~/``.

        Raises:
            HttpError: 400 for an invalid path.
        """
        if not isinstance(text, str) or not 0 < len(text) <= MAX_PATH_CHARS or "\0" in text:
            raise bad(f"a path must be text of 1 to {MAX_PATH_CHARS} characters without NUL")
        home = self.desktop.session.home
        return home / text[2:] if text.startswith("~/") else home / text
