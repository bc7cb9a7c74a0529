"""Guests without our agent of one instance, and what they offer."""

from __future__ import annotations

import contextlib
import logging
import shutil
from pathlib import Path

from osgym_host.addresses import GuestAddress
from osgym_host.images.disks.manifest import GuestKind
from osgym_host.runtimes.qemu.agentless.clone_identity import NOTES, apply_clone_identity
from osgym_host.runtimes.qemu.agentless.guest import AgentlessGuest, MachineFacts, ScreenSource
from osgym_host.runtimes.qemu.golden.snapshot import GoldenSnapshot
from osgym_host.runtimes.qemu.machine.machine import SCREEN_SOCKET
from osgym_protocol.reach import ReachKind

log = logging.getLogger(__name__)


def is_agentless(golden: GoldenSnapshot) -> bool:
    """Return whether clones of a snapshot lack our guest agent."""
    return golden.guest is not GuestKind.OSGYM


REACH = {
    GuestKind.OSGYM: frozenset(ReachKind),
    GuestKind.OSWORLD: frozenset({ReachKind.A11Y}),
    GuestKind.NONE: frozenset[ReachKind](),
}
"""Ways to reach into the desktop that each kind of guest offers."""


def reach_of(golden: GoldenSnapshot | None) -> frozenset[ReachKind]:
    """Return the ways to reach into clones of a snapshot; all, while it is unknown."""
    return frozenset(ReachKind) if golden is None else REACH[golden.guest]


def notes_on(golden: GoldenSnapshot | None) -> tuple[str, ...]:
    """Return the restrictions of clones of a snapshot, one sentence each."""
    return () if golden is None else NOTES[golden.guest]


class AgentlessGuests:
    """Guests without our agent of one instance; no machine can write to the folder of their sockets."""

    def __init__(self, folder: Path) -> None:
        """Args:
        folder: Folder for the sockets alone, below `run/<instance>`.
        """
        self._folder = folder

    def open(self) -> None:
        """Make the folder anew."""
        shutil.rmtree(self._folder, ignore_errors=True)
        self._folder.mkdir(mode=0o700, parents=True)

    def close(self) -> None:
        """Remove the empty folder. Idempotent.

        Raises:
            OSError: Something is left in it.
        """
        with contextlib.suppress(FileNotFoundError):
            self._folder.rmdir()

    async def serve(
        self,
        golden: GoldenSnapshot,
        name: str,
        folder: Path,
        pid: int,
        address: GuestAddress,
        generation: int,
    ) -> AgentlessGuest:
        """Serve a running machine.

        Raises:
            QmpError: Its second QMP server does not answer.
            OSError: The socket cannot be made.
        """
        facts = MachineFacts(
            generation=generation,
            qmp=folder / SCREEN_SOCKET,
            pid=pid,
            server=address if golden.guest is GuestKind.OSWORLD else None,
            screen=ScreenSource(golden.screen_from),
        )
        return await AgentlessGuest.open(facts, self._folder / f"{name}.sock")

    async def identify(self, golden: GoldenSnapshot, address: GuestAddress, replica_id: str) -> None:
        """Make a fresh clone as different from its siblings as possible."""
        if golden.guest is GuestKind.OSWORLD:
            applied = await apply_clone_identity(address)
            log.debug("replica %s: applied %s", replica_id, applied)
