"""Tree of the whole desktop: the trees of all applications, and the windows of those without one."""

from __future__ import annotations

import asyncio

from osgym_guest.osworld.a11y.bus import Bus
from osgym_guest.osworld.a11y.late_bridge import GtkBridges
from osgym_guest.osworld.a11y.tree import Application, Cells, Node, Ref, applications
from osgym_guest.osworld.a11y.window_match import add_windows
from osgym_guest.osworld.a11y.x_windows import read_windows


class DesktopReader:
    """Reads trees over one connection to the bus, with caches that make later readings cheaper."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._cells = Cells()
        self._bridges = GtkBridges()

    async def read(self, *, deadline_s: float) -> Node:
        """Return the whole tree, with the windows of programs that have none.

        An application that is not read within `deadline_s` is marked as partial.

        Raises:
            BusError: There is no registry.
            BusClosed: The connection to the bus is lost.
        """
        windows, members = await asyncio.gather(read_windows(), self._members())
        joined = {pid for pid in members.values() if pid is not None}

        async def on_the_bus() -> set[int]:
            return {pid for pid in (await self._members()).values() if pid is not None}

        await self._bridges.load(windows, joined, on_the_bus)
        if any(window.pid not in joined for window in windows):
            members = await self._members()
        walkers = [Application(self._bus, ref, self._cells) for ref in members]
        root = Node("desktop-frame", children=[walker.root for walker in walkers])
        await asyncio.gather(*(walker.read(deadline_s) for walker in walkers))
        add_windows(root, list(members.values()), windows)
        return root

    async def _members(self) -> dict[Ref, int | None]:
        """Return the applications on the bus and their processes."""
        refs = await applications(self._bus)
        pids = await asyncio.gather(*(self._bus.process_id(ref.bus_name) for ref in refs))
        return dict(zip(refs, pids, strict=True))
