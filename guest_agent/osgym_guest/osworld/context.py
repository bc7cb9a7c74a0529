"""State that the handlers share: desktop, session, and services made at first use."""

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
    """Screen and pointer, as the OSWorld endpoints need them."""

    async def screenshot_png(self) -> bytes:
        """Return the screen now, with the cursor drawn in, as a PNG file."""
        ...

    def screen_size(self) -> tuple[int, int]: ...

    async def cursor_position(self) -> tuple[int, int]: ...


class OsworldContext:
    """State shared by all OSWorld endpoints of one agent.

    Attributes:
        desktop: Screen and pointer.
        session: Environment and home of started programs.
        helper_warm_s: Idle time after which the accessibility helper ends.
    """

    def __init__(self, desktop: Desktop, session: DesktopSession, helper_warm_s: float):
        self.desktop = desktop
        self.session = session
        self.helper_warm_s = helper_warm_s

    @cached_property
    def runner(self) -> CommandRunner:
        from osgym_guest.osworld.process import CommandRunner

        return CommandRunner(self.session)

    @cached_property
    def windows(self) -> DesktopWindows:
        from osgym_guest.osworld.windows import DesktopWindows

        return DesktopWindows(self.session)

    @cached_property
    def helper(self) -> Helper:
        from osgym_guest.osworld.helper import Helper

        return Helper(self.session, warm_s=self.helper_warm_s)

    @cached_property
    def recorder(self) -> ScreenRecorder:
        from osgym_guest.osworld.recording import ScreenRecorder

        return ScreenRecorder(self.desktop.screen_size, self.session)

    async def close(self) -> None:
        """Close the services that were made. Programs that were launched continue."""
        if "windows" in self.__dict__:
            self.windows.disconnect()
        if "recorder" in self.__dict__:
            await self.recorder.stop()
        if "helper" in self.__dict__:
            await self.helper.stop()
