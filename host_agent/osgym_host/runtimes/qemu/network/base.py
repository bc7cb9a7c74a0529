"""What the runtime asks of a network: a connection for each machine, and who may be reached from it.

A machine is attached before its process starts, with nothing allowed; the policy is set when it becomes
a replica. The guest sees the same network in every kind: it is 10.0.2.15/24, its gateway 10.0.2.2, its
name server 10.0.2.3.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from osgym_host.addresses import GuestAddress
from osgym_host.runtimes.base import Egress
from osgym_host.runtimes.qemu.machine import AnyNamespace, GuestReach, TapNet, UserNet, namespace_of


@dataclass(frozen=True, slots=True)
class Attachment:
    """The connection of one machine.

    Attributes:
        name: Of the machine, as it was attached.
        backend: For `argv.Launch.network`.
        fds: For `launcher.LaunchRequest.fds`: QEMU's descriptor numbers to ours. Close ours with
            `Network.started` when the process runs.
        namespace, guest_listener: For `launcher.LaunchRequest`.
        guest: Where the guest agent is reached; None when only QEMU knows the port (ask it).
    """

    name: str
    backend: UserNet | TapNet
    fds: Mapping[int, int] = field(default_factory=dict)
    namespace: AnyNamespace | None = None
    guest_listener: int | None = None
    guest: GuestAddress | None = None


@dataclass(frozen=True, slots=True)
class FoundGuest:
    """Where the guest agent of a machine of a previous host agent was reached.

    Attributes:
        pid: Of the machine's process, which runs.
    """

    host: str
    port: int
    reach: GuestReach
    pid: int


def hold_namespace(guest: FoundGuest) -> AnyNamespace | None:
    """Hold the namespace that a machine of a previous host agent runs in; None when it is gone."""
    return namespace_of(guest.pid)


class Network(ABC):
    """Connections of the machines of one instance. Every method may be called concurrently."""

    @property
    @abstractmethod
    def egress(self) -> frozenset[Egress]:
        """Policies that can be carried out here. Valid after `start`."""

    @property
    @abstractmethod
    def notes(self) -> tuple[str, ...]:
        """What is missing here and how to get it. Valid after `start`."""

    @abstractmethod
    async def start(self) -> None:
        """Find out what the host offers and make what all connections share. Idempotent.

        Raises:
            RuntimeUnsupported: This kind cannot be had here; the message says what to do.
        """

    @abstractmethod
    async def attach(self, name: str) -> Attachment:
        """Connect a machine that is about to start; it reaches nothing yet.

        Raises:
            NetworkFailed: It could not be done; nothing of it is left.
        """

    @abstractmethod
    async def started(self, attachment: Attachment) -> None:
        """Close our copies of the descriptors: the machine's process has its own. Idempotent."""

    @abstractmethod
    async def allow(self, name: str, egress: Egress) -> None:
        """Set whom the machine may reach, from now on.

        Raises:
            RuntimeUnsupported: The policy is not among `egress`.
            NetworkFailed: It could not be set; nothing more than before is allowed.
        """

    @abstractmethod
    async def detach(self, name: str) -> None:
        """Remove the connection of a machine whose process is gone. Idempotent.

        Raises:
            NetworkFailed: Something is left; calling again tries again.
        """

    @abstractmethod
    async def adopt(self, name: str, egress: Egress, guest: FoundGuest) -> GuestAddress | None:
        """Go on serving a machine of a previous host agent, which may have had another kind of network.

        Args:
            guest: Where its guest agent was reached, and by which way.

        Returns:
            Where it is reached now; None when it cannot be carried on with this policy here.

        Raises:
            NetworkFailed: Its policy cannot be set.
        """

    @abstractmethod
    async def reap(self, keep: Collection[str] = ()) -> int:
        """Remove the connections of a previous host agent, but for the machines in `keep`.

        Returns:
            How many were removed.

        Raises:
            NetworkFailed: Something is left.
        """

    @abstractmethod
    async def stop(self) -> None:
        """Remove everything of this instance. Idempotent.

        Raises:
            NetworkFailed: Something is left.
        """
