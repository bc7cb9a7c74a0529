"""What the handlers share: the desktop, the session, and what is made at first use."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Protocol

from osgym_guest.osworld.session import DesktopSession

if TYPE_CHECKING:
    from osgym_guest.osworld.helper import Helper
    from osgym_guest.osworld.process import CommandRunner
    from osgym_guest.osworld.recording import ScreenRecorder
    from osgym_guest.osworld.windows import DesktopWindows


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


class OsworldContext:
    """Shared by all OSWorld endpoints of one agent.

    Attributes:
        desktop: the screen and the pointer.
        session: environment and home of what is started.
        helper_warm_s: how long the accessibility helper stays unasked.
    """

    def __init__(self, desktop: Desktop, session: DesktopSession, helper_warm_s: float):
        self.desktop = desktop
        self.session = session
        self.helper_warm_s = helper_warm_s

    @cached_property
    def runner(self) -> CommandRunner:
        """Run commands."""
        from osgym_guest.osworld.process import CommandRunner

        return CommandRunner(self.session)

    @cached_property
    def windows(self) -> DesktopWindows:
        """The session's windows."""
        from osgym_guest.osworld.windows import DesktopWindows

        return DesktopWindows(self.session)

    @cached_property
    def helper(self) -> Helper:
        """The accessibility helper."""
        from osgym_guest.osworld.helper import Helper

        return Helper(self.session, warm_s=self.helper_warm_s)

    @cached_property
    def recorder(self) -> ScreenRecorder:
        """The recorder of the screen."""
        from osgym_guest.osworld.recording import ScreenRecorder

        return ScreenRecorder(self.desktop.screen_size, self.session)

    async def close(self) -> None:
        """Let go of what was made; what was launched lives on."""
        if "windows" in self.__dict__:
            self.windows.disconnect()
        if "recorder" in self.__dict__:
            await self.recorder.stop()
        if "helper" in self.__dict__:
            await self.helper.stop()
