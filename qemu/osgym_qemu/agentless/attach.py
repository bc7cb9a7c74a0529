"""Guests without our agent of one instance, and what they offer."""

from __future__ import annotations

import contextlib
import json
import logging
import re
import secrets
import shutil
import time
import uuid
from pathlib import Path

from osgym_host.addresses import GuestAddress
from osgym_host.guest_client.errors import GuestError
from osgym_host.guest_client.http import HttpClient
from osgym_host.runtimes.base import HOSTNAME
from osgym_protocol.reach import ReachKind
from osgym_qemu.agentless.guest import AgentlessGuest, MachineFacts, ScreenSource
from osgym_qemu.disks.manifest import GuestKind
from osgym_qemu.golden.snapshot import GoldenSnapshot
from osgym_qemu.machine.machine import SCREEN_SOCKET

log = logging.getLogger(__name__)
TIMEOUT_S = 10.0
PASSWORDS = ("password", "osworld-public-evaluation")
"""Passwords of the user in OSWorld's published images (its README: local images, images for clouds)."""
_MAX_ANSWER_BYTES = 64 * 1024
_SEED_BYTES = 64
_PARTS = re.compile(r"applied=(\w+)")
NOTES: dict[GuestKind, tuple[str, ...]] = {
    GuestKind.OSGYM: (),
    GuestKind.OSWORLD: (
        "The guest runs OSWorld's server: a clone's random state is stirred, its clock and names are set "
        "where sudo works with a known password; none of this is confirmed.",
        "Its screen counts as final by its pixels and CPU use, since its timers cannot be seen.",
    ),
    GuestKind.NONE: (
        "The guest has no agent: clones share random state, names and machine-id, and their clock is that "
        "of the snapshot.",
        "Files, commands and the accessibility tree are not available (not_available); text is typed on a "
        "US keyboard.",
        "Its screen counts as final by its pixels and CPU use, since its timers cannot be seen.",
    ),
}
"""Restrictions of clones of such guests, for `Capabilities.notes`."""


def is_agentless(golden: GoldenSnapshot) -> bool:
    """Return whether clones of a snapshot lack our guest agent."""
    return golden.guest is not GuestKind.OSGYM


REACH = {
    GuestKind.OSGYM: frozenset(ReachKind),
    GuestKind.OSWORLD: frozenset({ReachKind.A11Y, ReachKind.SCORE}),
    GuestKind.NONE: frozenset({ReachKind.SCORE}),
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


def script(hostname: str, seed: str, time_s: float, machine_id: str) -> str:
    """Return the shell script for the guest; it prints which parts were applied."""
    passwords = " ".join(PASSWORDS)
    return f"""
printf %s {seed} > /dev/urandom 2>/dev/null && echo applied=seed
for word in {passwords}; do
  if sudo -n true 2>/dev/null; then root() {{ sudo -n "$@" 2>/dev/null; }}; break; fi
  if echo "$word" | sudo -S -p "" true 2>/dev/null; then
    root() {{ echo "$word" | sudo -S -p "" "$@" 2>/dev/null; }}; break
  fi
done
command -v root >/dev/null 2>&1 || exit 0
root date -s @{time_s:.3f} >/dev/null && echo applied=time
root hostname {hostname} && echo applied=hostname
root sh -c "echo {machine_id} > /etc/machine-id" && echo applied=machine_id
"""


async def apply_clone_identity(address: GuestAddress) -> frozenset[str]:
    """Try to give a clone an identity of its own, within `TIMEOUT_S`.

    Returns:
        Names of the parts that the guest says were applied: `seed`, `time`, `hostname`, `machine_id`.
        Empty when it does not answer.
    """
    text = script(HOSTNAME, secrets.token_hex(_SEED_BYTES), time.time(), uuid.uuid4().hex)
    body = json.dumps({"command": ["sh", "-c", text], "shell": False}).encode()
    http = HttpClient(address, max_connections=1)
    try:
        answer = await http.request("POST", "/execute", body, timeout_s=TIMEOUT_S, max_body=_MAX_ANSWER_BYTES)
        said = json.loads(bytes(answer.body))
    except (GuestError, ValueError, RecursionError):
        return frozenset()
    finally:
        http.close()
    output = said.get("output") if isinstance(said, dict) else None
    known = {"seed", "time", "hostname", "machine_id"}
    return frozenset(_PARTS.findall(output)) & known if isinstance(output, str) else frozenset()
