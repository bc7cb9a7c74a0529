"""Files of a replica read from its disk, if its runtime can freeze the disk.

A guest agent says what a file holds, and whoever took its place says what it likes. What lies on the disk is
read in the confined process instead; the agent is only asked to have it written back first, and one that
lies about that is scored by what was there before.
"""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable

from osgym_host.guest_client import GuestClient, GuestRefused
from osgym_host.runtimes.frozen_disk import FrozenDisk
from osgym_host.tasks.values import DiskFile

Freeze = Callable[[], Awaitable[FrozenDisk | None]]
"""Gives the disk as it is now; None where its runtime cannot, or for a guest that is not ours."""

IN_MEMORY = ("dev", "proc", "run", "sys", "tmp")
"""First folders of paths that are on no disk of our images."""


def on_disk(path: str) -> bool:
    """Return whether a path can be on a disk: absolute, plain, and not below a file system in memory."""
    parts = [part for part in path.split("/") if part not in ("", ".")]
    plain = path.startswith("/") and ".." not in parts and "$" not in path
    return plain and bool(parts) and parts[0] not in IN_MEMORY


class GuestDisk:
    """The disk of one replica during one evaluation: frozen when it is first asked for."""

    def __init__(self, guest: GuestClient, freeze: Freeze) -> None:
        self._guest = guest
        self._freeze = freeze
        self._asked = False
        self._frozen: FrozenDisk | None = None

    async def file(self, path: str, name: str, timeout_s: float) -> DiskFile | None:
        """Return a file by its absolute path; None if only the guest agent can read it.

        Raises:
            GuestError: The replica is gone.
            RuntimeFault: Its disk cannot be frozen.
        """
        if not on_disk(path):
            return None
        if not self._asked:
            self._frozen = await self._take(timeout_s)
            self._asked = True
        return None if self._frozen is None else DiskFile(self._frozen, path, name)

    async def _take(self, timeout_s: float) -> FrozenDisk | None:
        with contextlib.suppress(GuestRefused):  # then the disk has what was written back by itself
            await self._guest.execute(["sync"], timeout_s=timeout_s)
        return await self._freeze()
