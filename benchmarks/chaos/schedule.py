"""Schedule of the faults. Pure, and the same for the same seed."""

from __future__ import annotations

import enum
from collections.abc import Collection
from dataclasses import dataclass
from random import Random


class Scope(enum.Enum):
    """Scope of a fault's harm."""

    REPLICA = "the replica of one episode, by the host's tools"
    POLICY = "the replica of one episode, by what its own policy types"
    HOST = "the host agent, and with it every episode"
    CLIENT = "nobody, if the service is right: a client misbehaves"


class Kind(enum.Enum):
    """Fault, as the table names it."""

    AGENT_KILLED = "guest agent killed"
    AGENT_FROZEN = "guest agent frozen"
    DISPLAY_KILLED = "X server killed"
    DISPLAY_FROZEN = "X server frozen"
    REPLICA_KILLED = "replica killed"
    REPLICA_FROZEN = "replica frozen"
    ONE_BYTE_CHUNKS = "agent replaced: chunks of one byte"
    JSON_MOUNTAIN = "agent replaced: 15 MB of JSON"
    NOISE = "agent replaced: no HTTP, no end"
    POLICY_MEMORY_BOMB = "policy: memory bomb"
    POLICY_PROCESS_BOMB = "policy: fork bomb"
    POLICY_DISK_BOMB = "policy: more on the disk than it may"
    POLICY_KILLS_ALL = "policy: sudo kill -9 -1"
    POLICY_KILLS_HARNESS = "policy: kills guest agent and X server by name"
    POLICY_STOPS_HARNESS = "policy: stops guest agent and X server by name"
    POLICY_FIRST_PROCESS_TRACED = "policy: kills process 1 as its tracer"
    POLICY_REBOOTS = "policy: sudo reboot()"
    POLICY_X_CLIENTS_USED_UP = "policy: uses up the X server's clients"
    POLICY_PORT_FORGED = "policy: listens on the guest agent's port"
    POLICY_HOME_CLOSED = "policy: chmod 000 ~"
    POLICY_RESULT_IS_FIFO = "policy: a fifo in place of the result"
    POLICY_RESULT_IS_DEVICE = "policy: /dev/zero in place of the result"
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
BY_POLICIES = frozenset(
    (
        Kind.POLICY_MEMORY_BOMB,
        Kind.POLICY_PROCESS_BOMB,
        Kind.POLICY_DISK_BOMB,
        Kind.POLICY_KILLS_ALL,
        Kind.POLICY_KILLS_HARNESS,
        Kind.POLICY_STOPS_HARNESS,
        Kind.POLICY_FIRST_PROCESS_TRACED,
        Kind.POLICY_REBOOTS,
        Kind.POLICY_X_CLIENTS_USED_UP,
        Kind.POLICY_PORT_FORGED,
        Kind.POLICY_HOME_CLOSED,
        Kind.POLICY_RESULT_IS_FIFO,
        Kind.POLICY_RESULT_IS_DEVICE,
    )
)
"""Faults that a policy causes: it gets the honest score or a 0 of its own, on its first attempt."""
SPARES_RESULT = frozenset(
    (
        Kind.POLICY_KILLS_HARNESS,
        Kind.POLICY_STOPS_HARNESS,
        Kind.POLICY_FIRST_PROCESS_TRACED,
        Kind.POLICY_PORT_FORGED,
        Kind.POLICY_REBOOTS,
    )
)
"""Policy faults that leave the result of the task as it is: a desktop that survives earns its score."""
REPLACED = frozenset((Kind.ONE_BYTE_CHUNKS, Kind.JSON_MOUNTAIN, Kind.NOISE))
BESIDE_AGENT = REPLACED | {Kind.AGENT_KILLED, Kind.AGENT_FROZEN, Kind.DISPLAY_KILLED, Kind.DISPLAY_FROZEN}
"""Faults of the processes that look after the desktop, caused on `local` by tools of the host.

Nothing in a desktop reaches these processes; those of a virtual machine are not reached from outside either.
The host agent cannot know who caused such a fault, so the loss may be the policy's or the host's.
"""
FROM_INSIDE = BY_POLICIES | BESIDE_AGENT
"""Faults with a cause inside the desktop: no other may be the policy's loss."""
CONTAINERS = frozenset((Kind.DOCKER_RESTARTED, Kind.RUNNER_REMOVED))
QEMU_ONLY, LOCAL_ONLY = CONTAINERS, BESIDE_AGENT


def scope_of(kind: Kind) -> Scope:
    if kind in HOST_WIDE:
        return Scope.HOST
    if kind in BY_POLICIES:
        return Scope.POLICY
    return Scope.CLIENT if kind in BY_CLIENTS else Scope.REPLICA


@dataclass(frozen=True)
class Planned:
    """One planned fault.

    Attributes:
        at_s: Time after the beginning.
        draw: Number from 0 to 1 that chooses the victim and the details.
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
