"""What the handlers share: the desktop, the session, and what is made at first use."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from osgym_guest.desktop import Desktop
from osgym_guest.osworld.session import Session

if TYPE_CHECKING:
    from osgym_guest.osworld.helper import Helper
    from osgym_guest.osworld.process import Runner
    from osgym_guest.osworld.recording import Recorder
    from osgym_guest.osworld.windows import Windows


class Context:
    """Shared by all OSWorld endpoints of one agent.

    Attributes:
        desktop: the screen and the pointer.
        session: environment and home of what is started.
        helper_warm_s: how long the accessibility helper stays unasked.
    """

    def __init__(self, desktop: Desktop, session: Session, helper_warm_s: float):
        self.desktop = desktop
        self.session = session
        self.helper_warm_s = helper_warm_s

    @cached_property
    def runner(self) -> Runner:
        """Runs commands."""
        from osgym_guest.osworld.process import Runner

        return Runner(self.session)

    @cached_property
    def windows(self) -> Windows:
        """The session's windows."""
        from osgym_guest.osworld.windows import Windows

        return Windows(self.session)

    @cached_property
    def helper(self) -> Helper:
        """The accessibility helper."""
        from osgym_guest.osworld.helper import Helper

        return Helper(self.session, warm_s=self.helper_warm_s)

    @cached_property
    def recorder(self) -> Recorder:
        """The recorder of the screen."""
        from osgym_guest.osworld.recording import Recorder

        return Recorder(self)

    async def close(self) -> None:
        """Let go of what was made; what was launched lives on."""
        if "windows" in self.__dict__:
            self.windows.disconnect()
        if "recorder" in self.__dict__:
            await self.recorder.stop()
        if "helper" in self.__dict__:
            await self.helper.stop()
