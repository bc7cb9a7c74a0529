"""Rule that attributes the first guest agent faults in a task to the host, and later ones to the policy."""

from __future__ import annotations

import logging
from collections import OrderedDict

from osgym_host.guest_client import GuestRefused
from osgym_host.tasks.replica_side import AGENT_FAULTS, BREAKABLE
from osgym_protocol.codes import GuestErrorCode

log = logging.getLogger(__name__)

EXCUSED = 2
"""Number of guest agent faults, for one task of a run, that are the host's loss. A policy that knows how to
cause such a fault therefore gains at most this many more tries."""
KEEP = 4096
"""Number of tasks whose faults are counted; those longest without a fault are forgotten first."""


class AgentFaults:
    """Counter, by run and task, of guest agent faults that programs of the desktop may have caused."""

    def __init__(self) -> None:
        self._seen: OrderedDict[tuple[str | None, str | None], int] = OrderedDict()

    def is_excused(self, run: str | None, task_id: str | None) -> bool:
        """Count a fault; return whether it is among the first `EXCUSED` of its task."""
        key = (run, task_id)
        seen = self._seen[key] = self._seen.pop(key, 0) + 1
        if len(self._seen) > KEEP:
            self._seen.popitem(last=False)
        log.warning("task %s of run %s: guest agents have failed %d times by themselves", task_id, run, seen)
        return seen <= EXCUSED


def is_agents_own(error: GuestRefused) -> bool:
    """Return whether a refusal shows a fault of the guest agent that no program of the desktop can cause."""
    return error.code in AGENT_FAULTS and error.code not in BREAKABLE


def may_be_agents_own(error: GuestRefused) -> bool:
    """Return whether a refusal shows a fault of the guest agent, also one that a program may have caused."""
    return is_agents_own(error) or error.code == GuestErrorCode.INTERNAL
