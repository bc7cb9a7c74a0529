"""When the failure of a guest agent is the host's loss, though a policy may know how to bring it about."""

from __future__ import annotations

import logging
from collections import OrderedDict

from osgym_host.guest_client import GuestRefused
from osgym_host.tasks.interface import AGENT_FAULTS, BREAKABLE
from osgym_protocol.codes import GuestErrorCode

log = logging.getLogger(__name__)

EXCUSED = 2
"""Faults of guest agents in one task of a run that are the host's: a policy that has found how to bring one
about gains no more tries by it."""
KEEP = 4096
"""Tasks that are counted; the ones longest without a fault are forgotten first."""


class AgentFaults:
    """Counts, by run and task, faults of guest agents that what is on a desktop may bring about."""

    def __init__(self) -> None:
        """Have seen none."""
        self._seen: OrderedDict[tuple[str | None, str | None], int] = OrderedDict()

    def is_excused(self, run: str | None, task_id: str | None) -> bool:
        """Count a fault; return whether it is one of the first of its task."""
        key = (run, task_id)
        seen = self._seen[key] = self._seen.pop(key, 0) + 1
        if len(self._seen) > KEEP:
            self._seen.popitem(last=False)
        log.warning("task %s of run %s: guest agents have failed %d times by themselves", task_id, run, seen)
        return seen <= EXCUSED


def is_agents_own(error: GuestRefused) -> bool:
    """Return whether nothing on a desktop can make a sound guest agent refuse a call so."""
    return error.code in AGENT_FAULTS and error.code not in BREAKABLE


def may_be_agents_own(error: GuestRefused) -> bool:
    """Return whether a guest agent that refuses a call so has a fault, by whatever that was brought about."""
    return is_agents_own(error) or error.code == GuestErrorCode.INTERNAL
