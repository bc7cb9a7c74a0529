"""What the other parts of the agent may ask of the desktop."""

from __future__ import annotations

from typing import Protocol


class Desktop(Protocol):
    """The screen and the pointer, as the OSWorld endpoints need them."""

    async def screenshot_png(self) -> bytes:
        """The screen now, with the cursor drawn in, as a PNG file."""
        ...

    def screen_size(self) -> tuple[int, int]:
        """Width and height in pixels."""
        ...

    async def cursor_position(self) -> tuple[int, int]:
        """Where the pointer is, in pixels."""
        ...
