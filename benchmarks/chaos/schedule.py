"""Which fault comes when: pure, and the same for the same seed."""

from __future__ import annotations

import enum
from collections.abc import Collection
from dataclasses import dataclass
from random import Random


class Scope(enum.Enum):
    """Who is harmed."""

    REPLICA = "the replica of one episode"
    HOST = "the host agent, and with it every episode"
    CLIENT = "nobody, if the service is right: a client misbehaves"


class Kind(enum.Enum):
    """A fault, as the table shows it."""

    AGENT_KILLED = "guest agent killed"
    AGENT_FROZEN = "guest agent frozen"
    DISPLAY_KILLED = "X server killed"
    DISPLAY_FROZEN = "X server frozen"
    REPLICA_KILLED = "replica killed"
    REPLICA_FROZEN = "replica frozen"
    MEMORY_BOMB = "memory bomb inside"
    PROCESS_BOMB = "process bomb inside"
    DISK_BOMB = "disk bomb inside"
    ONE_BYTE_CHUNKS = "agent replaced: chunks of one byte"
    JSON_MOUNTAIN = "agent replaced: 15 MB of JSON"
    NOISE = "agent replaced: no HTTP, no end"
    NETWORK_CUT = "network between host and guest cut"
    CLOCK_JUMP = "clock jumps"
    HOST_KILLED = "host agent killed (kill -9), started again"
    IMAGE_MISSING = "image missing for 4 s"
    DISK_FULL = "disk of the host full for 4 s"
    DOCKER_RESTARTED = "dockerd restarted"
    RUNNER_REMOVED = "runner container removed"
    CLIENT_DIES = "client dies with its lease"
    CLIENT_FLOODS = "client floods"
    CLIENT_REPEATS = "client repeats requests"
    CLIENT_STEALS = "client steals leases and numbers"


HOST_WIDE = frozenset(
    (Kind.HOST_KILLED, Kind.CLOCK_JUMP, Kind.IMAGE_MISSING, Kind.DISK_FULL, Kind.DOCKER_RESTARTED)
)
BY_CLIENTS = frozenset((Kind.CLIENT_DIES, Kind.CLIENT_FLOODS, Kind.CLIENT_REPEATS, Kind.CLIENT_STEALS))
OWN_DOING = frozenset((Kind.MEMORY_BOMB, Kind.PROCESS_BOMB, Kind.DISK_BOMB))
"""What a policy may do to its own desktop: there it may fail its task, and no other."""
REPLACED = frozenset((Kind.ONE_BYTE_CHUNKS, Kind.JSON_MOUNTAIN, Kind.NOISE))
"""Faults that a policy with sudo can cause as well: such an episode is the policy's loss, with reward 0."""
FROM_INSIDE = (
    OWN_DOING
    | REPLACED
    | {Kind.AGENT_KILLED, Kind.AGENT_FROZEN, Kind.DISPLAY_KILLED, Kind.DISPLAY_FROZEN, Kind.NETWORK_CUT}
)
"""Faults with a cause inside the desktop: an episode is the policy's loss if and only if one ends it."""
CONTAINERS = frozenset((Kind.DOCKER_RESTARTED, Kind.RUNNER_REMOVED))
QEMU_ONLY = frozenset((Kind.NETWORK_CUT,)) | CONTAINERS


def scope_of(kind: Kind) -> Scope:
    """Who is harmed by it."""
    if kind in HOST_WIDE:
        return Scope.HOST
    return Scope.CLIENT if kind in BY_CLIENTS else Scope.REPLICA


@dataclass(frozen=True)
class Planned:
    """One fault.

    Attributes:
        at_s: after the beginning.
        draw: a number from 0 to 1 that chooses whom it hits, and how.
    """

    at_s: float
    kind: Kind
    draw: float


def plan(seed: int, seconds: float, every_s: float, kinds: Collection[Kind]) -> list[Planned]:
    """Return the faults of a run: each kind as often as any other, in an order of its own each time."""
    random = Random(f"chaos:{seed}")
    deck: list[Kind] = []
    found: list[Planned] = []
    for number in range(1, int(seconds / every_s) + 1):
        if not deck:
            deck = sorted(kinds, key=lambda kind: kind.name)
            random.shuffle(deck)
        found.append(Planned(number * every_s, deck.pop(), random.random()))
    return found
