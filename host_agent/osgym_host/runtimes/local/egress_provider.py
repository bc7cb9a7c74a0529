"""Egress of the replicas of one instance: links of their own, the host's proxy, or none."""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from osgym_host.runtimes.base import Egress
from osgym_host.runtimes.local import network
from osgym_host.runtimes.web.client import ReplicaProxy
from osgym_host.runtimes.web.proxy_setup import ProxySetup


class ListenerChannel:
    """Socket pair over which a replica's maker sends the socket that listens for the proxy in its network."""

    def __init__(self) -> None:
        self._ours, self._theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._ours.setblocking(False)

    @property
    def fd(self) -> int:
        """Descriptor of the end that the maker gets."""
        return self._theirs.fileno()

    def take(self) -> socket.socket:
        """Return the listening socket. The maker has sent it before the replica's session runs.

        Raises:
            OSError: The maker sent no socket.
        """
        _, fds, _, _ = socket.recv_fds(self._ours, 1, 1, socket.MSG_CMSG_CLOEXEC)
        if not fds:
            raise OSError(errno.EBADF, "the process that makes the replica sent no socket")
        return socket.socket(fileno=fds[0])

    def close(self) -> None:
        """Close both ends. Idempotent."""
        self._ours.close()
        self._theirs.close()


@dataclass(frozen=True, slots=True)
class ReplicaEgress:
    """Egress reserved for one replica. Close it as soon as the replica runs, or its making failed.

    Attributes:
        name_server: Address of the host's end of the link; empty without one.
        proxy_setup: Variables and files that make programs use the proxy; None without it.
        channel: Channel for the socket that listens for the proxy; None without it.
    """

    name: str
    egress: Egress
    name_server: str = ""
    proxy_setup: ProxySetup | None = None
    channel: ListenerChannel | None = None

    @property
    def fds(self) -> tuple[int, ...]:
        """Descriptors that the replica's maker gets for it (see `protocol`)."""
        return () if self.channel is None else (self.channel.fd,)

    def close(self) -> None:
        """Close the channel. Idempotent."""
        if self.channel is not None:
            self.channel.close()


class EgressProvider:
    """Links, a proxy, or neither, for all replicas of an instance."""

    def __init__(self, links: network.ReplicaNetwork | None, proxy: ReplicaProxy | None) -> None:
        self.links = links
        self.proxy = proxy

    @property
    def egress(self) -> frozenset[Egress]:
        policies = [part.egress for part in (self.links, self.proxy) if part is not None]
        return frozenset({Egress.NONE}).union(*policies)

    @property
    def notes(self) -> tuple[str, ...]:
        """Restrictions of the links on this host, for people."""
        return () if self.links is None else tuple(self.links.notes)

    async def start(self, mark: str, record: Path) -> None:
        """Open links and proxy, when no process of a former replica is left; without links, remove former
        ones.

        Args:
            mark: Mark that tells the instance's links from others.
            record: File that exists while links of the instance may exist.

        Raises:
            RuntimeUnsupported: The host cannot do it; the message says what to do.
            RuntimeFault: It failed.
        """
        if self.links is not None:
            await self.links.start()
        else:
            await asyncio.to_thread(network.clear, mark, record)
        if self.proxy is not None:  # last, so that nothing else fails with it running
            await self.proxy.start()

    async def stop(self) -> None:
        """Close links and proxy. Idempotent.

        Raises:
            NetworkFailed: Something is left.
        """
        if self.proxy is not None:
            await self.proxy.stop()
        if self.links is not None:
            await self.links.stop()

    async def reserve(self, name: str, egress: Egress) -> ReplicaEgress:
        """Reserve egress for a replica that is about to be made; nothing passes yet. `close` undoes it.

        Raises:
            NetworkFailed: No link could be made.
        """
        name_server = ""
        if self.links is not None and egress is not Egress.NONE:
            name_server = (await self.links.reserve(name)).host_ip
        if self.proxy is None or not self.proxy.serves(egress):
            return ReplicaEgress(name, egress, name_server)
        return ReplicaEgress(name, egress, name_server, self.proxy.setup(), ListenerChannel())

    async def connect(self, reserved: ReplicaEgress, namespaces: Sequence[int]) -> None:
        """Open the reserved egress of a replica that runs.

        Args:
            namespaces: Descriptor of the replica's network namespace, if it has a link; the caller closes it.

        Raises:
            NetworkFailed: Its link could not be connected.
            ProxyFailed: The proxy does not serve it.
            OSError: Its maker made no socket for the proxy.
        """
        if self.links is not None and reserved.name_server:
            await self.links.connect(reserved.name, namespaces[0], reserved.egress)
        if self.proxy is not None and reserved.channel is not None:
            await self.proxy.open(reserved.name, reserved.channel.take())

    async def close(self, name: str) -> None:
        """End every connection of a replica without processes. Idempotent.

        Raises:
            NetworkFailed: Something is left.
        """
        if self.proxy is not None:
            await self.proxy.close(name)
        if self.links is not None:
            await self.links.detach(name)
