"""Interface of networks: a connection for each machine, and its egress policy.

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
from osgym_qemu.machine.argv import TapNet, UserNet
from osgym_qemu.machine.namespace import AnyNamespace, namespace_of
from osgym_qemu.machine.records import GuestReach


@dataclass(frozen=True, slots=True)
class Attachment:
    """Connection of one machine.

    Attributes:
        backend: Value of `argv.Launch.network`.
        fds: Value of `launcher.LaunchRequest.fds`: the host's descriptors by their number in QEMU.
            `Network.started` closes them when the process runs.
        namespace, guest_listener: Values for `launcher.LaunchRequest`.
        guest: Address of the guest agent; None when only QEMU knows the port.
    """

    name: str
    backend: UserNet | TapNet
    fds: Mapping[int, int] = field(default_factory=dict)
    namespace: AnyNamespace | None = None
    guest_listener: int | None = None
    guest: GuestAddress | None = None


@dataclass(frozen=True, slots=True)
class FoundGuest:
    """Address of the guest agent of a machine of a previous host agent.

    Attributes:
        pid: PID of the machine's running process.
    """

    host: str
    port: int
    reach: GuestReach
    pid: int


def hold_namespace(guest: FoundGuest) -> AnyNamespace | None:
    """Open the namespace of a machine of a previous host agent; None when it is gone."""
    return namespace_of(guest.pid)


class Network(ABC):
    """Connections of the machines of one instance. Every method may be called concurrently."""

    @property
    @abstractmethod
    def egress(self) -> frozenset[Egress]:
        """Egress policies that can be carried out here. Valid after `start`."""

    @property
    @abstractmethod
    def notes(self) -> tuple[str, ...]:
        """Restrictions on this host and their remedies, for people. Valid after `start`."""

    @abstractmethod
    async def start(self) -> None:
        """Check the host and make the resources that all connections share. Idempotent.

        Raises:
            RuntimeUnsupported: This host lacks something for it; the message says what to do.
        """

    @abstractmethod
    async def attach(self, name: str) -> Attachment:
        """Connect a machine that is about to start; it reaches nothing yet.

        Raises:
            NetworkFailed: It could not be done; nothing of it is left.
        """

    @abstractmethod
    async def started(self, attachment: Attachment) -> None:
        """Close the host's copies of descriptors that the machine's process has. Idempotent."""

    @abstractmethod
    async def allow(self, name: str, egress: Egress) -> None:
        """Set the egress policy of the machine.

        Raises:
            RuntimeUnsupported: The policy is not among `egress`.
            NetworkFailed: It could not be set; no more than before is allowed.
        """

    @abstractmethod
    async def detach(self, name: str) -> None:
        """Remove the connection of a machine whose process is gone. Idempotent.

        Raises:
            NetworkFailed: Something is left; calling again tries again.
        """

    @abstractmethod
    async def adopt(self, name: str, egress: Egress, guest: FoundGuest) -> GuestAddress | None:
        """Serve a machine of a previous host agent, which may have had another kind of network.

        Returns:
            Present address; None when it cannot be carried on with this policy here.

        Raises:
            NetworkFailed: Its policy cannot be set.
        """

    @abstractmethod
    async def reap(self, keep: Collection[str] = ()) -> int:
        """Remove the connections of a previous host agent, but for the machines in `keep`.

        Returns:
            Number of removed connections.

        Raises:
            NetworkFailed: Something is left.
        """

    @abstractmethod
    async def stop(self) -> None:
        """Remove everything of this instance. Idempotent.

        Raises:
            NetworkFailed: Something is left.
        """
