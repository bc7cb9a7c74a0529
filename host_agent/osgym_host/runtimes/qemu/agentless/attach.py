"""Which of an instance's machines are served from here, and where: the runtime's side of this package."""

from __future__ import annotations

import contextlib
import logging
import shutil
from pathlib import Path

from osgym_host.addresses import GuestAddress
from osgym_host.images.disks.manifest import GuestKind
from osgym_host.runtimes.qemu.agentless.clone_identity import NOTES, apply_clone_identity
from osgym_host.runtimes.qemu.agentless.guest import AgentlessGuest, MachineFacts, ScreenSource
from osgym_host.runtimes.qemu.golden import GoldenSnapshot
from osgym_host.runtimes.qemu.machine import SCREEN_SOCKET
from osgym_protocol.reach import ReachKind

log = logging.getLogger(__name__)


def is_agentless(golden: GoldenSnapshot) -> bool:
    """Whether clones of a snapshot have no guest agent of ours inside."""
    return golden.guest is not GuestKind.OSGYM


REACH = {
    GuestKind.OSGYM: frozenset(ReachKind),
    GuestKind.OSWORLD: frozenset({ReachKind.A11Y}),
    GuestKind.NONE: frozenset[ReachKind](),
}
"""Ways into the desktop that each guest offers."""


def reach_of(golden: GoldenSnapshot | None) -> frozenset[ReachKind]:
    """Return what clones of a snapshot offer; all, before it is known."""
    return frozenset(ReachKind) if golden is None else REACH[golden.guest]


def notes_on(golden: GoldenSnapshot | None) -> tuple[str, ...]:
    """What clones of a snapshot cannot have, one sentence each."""
    return () if golden is None else NOTES[golden.guest]


class AgentlessGuests:
    """The guests without an agent of one instance; their sockets are where no machine can write."""

    def __init__(self, folder: Path) -> None:
        """Args: folder: For the sockets alone, below `run/<instance>`."""
        self._folder = folder

    def open(self) -> None:
        """Make the folder, without what a killed host agent left in it."""
        shutil.rmtree(self._folder, ignore_errors=True)
        self._folder.mkdir(mode=0o700, parents=True)

    def close(self) -> None:
        """Remove the folder, which is empty by now. Idempotent.

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
        """Serve a machine that runs.

        Args:
            name, folder, pid: Of the machine.
            address: Where a server in the guest is reached, if there is one.

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
        """Make a clone that has just woken as different from its siblings as can be had."""
        if golden.guest is GuestKind.OSWORLD:
            applied = await apply_clone_identity(address)
            log.debug("replica %s: applied %s", replica_id, applied)
