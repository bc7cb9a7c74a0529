"""How the replicas of one instance reach what is outside: by links, by the host's proxy, or not at all."""

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
from osgym_host.runtimes.web.inside import Given


class ListenerChannel:
    """A way on which the socket comes that a replica's maker made in its network. Close it."""

    def __init__(self) -> None:
        """Make both ends."""
        self._ours, self._theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._ours.setblocking(False)

    @property
    def fd(self) -> int:
        """The end to give away."""
        return self._theirs.fileno()

    def take(self) -> socket.socket:
        """Return the socket; it has come by the time that the replica's session runs.

        Raises:
            OSError: There is none.
        """
        _, fds, _, _ = socket.recv_fds(self._ours, 1, 1, socket.MSG_CMSG_CLOEXEC)
        if not fds:
            raise OSError(errno.EBADF, "the replica's maker sent no socket")
        return socket.socket(fileno=fds[0])

    def close(self) -> None:
        """Close both ends. Idempotent."""
        self._ours.close()
        self._theirs.close()


@dataclass(frozen=True, slots=True)
class Way:
    """What one replica gets of it. Close it when the replica runs, or never will.

    Attributes:
        name: Of the replica.
        name_server: With a link, the host's end of it.
        given: With the proxy, what makes programs use it.
    """

    name: str
    egress: Egress
    name_server: str = ""
    given: Given | None = None
    channel: ListenerChannel | None = None

    @property
    def fds(self) -> tuple[int, ...]:
        """What its maker gets besides (see `protocol`)."""
        return () if self.channel is None else (self.channel.fd,)

    def close(self) -> None:
        """Let go of what only its making needs. Idempotent."""
        if self.channel is not None:
            self.channel.close()


class WaysOut:
    """Links, or a proxy, or neither."""

    def __init__(self, links: network.ReplicaNetwork | None, proxy: ReplicaProxy | None) -> None:
        """Nothing is touched before `start`."""
        self.links = links
        self.proxy = proxy

    @property
    def egress(self) -> frozenset[Egress]:
        """The policies that replicas may have."""
        ways = [way.egress for way in (self.links, self.proxy) if way is not None]
        return frozenset({Egress.NONE}).union(*ways)

    @property
    def notes(self) -> tuple[str, ...]:
        """What is less than it should be."""
        return () if self.links is None else tuple(self.links.notes)

    async def start(self, mark: str, record: Path) -> None:
        """Open them, when no process of a former replica is left; without links, remove those that were.

        Args:
            mark: Of the instance's links.
            record: The file that says that there may be some.

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
        """Close them. Idempotent.

        Raises:
            NetworkFailed: Something is left.
        """
        if self.proxy is not None:
            await self.proxy.stop()
        if self.links is not None:
            await self.links.stop()

    async def reserve(self, name: str, egress: Egress) -> Way:
        """Begin with a replica that is about to be made; nothing passes yet. `close` undoes it.

        Raises:
            NetworkFailed: There is no link to be had.
        """
        name_server = ""
        if self.links is not None and egress is not Egress.NONE:
            name_server = (await self.links.reserve(name)).host_ip
        if self.proxy is None or not self.proxy.serves(egress):
            return Way(name, egress, name_server)
        return Way(name, egress, name_server, self.proxy.given(), ListenerChannel())

    async def connect(self, way: Way, namespaces: Sequence[int]) -> None:
        """Let a replica out that runs.

        Args:
            namespaces: With a link, the descriptor of its network namespace; the caller's to close.

        Raises:
            NetworkFailed: Its link could not be connected.
            ProxyFailed: The proxy does not serve it.
            OSError: Its maker made no socket for the proxy.
        """
        if self.links is not None and way.name_server:
            await self.links.connect(way.name, namespaces[0], way.egress)
        if self.proxy is not None and way.channel is not None:
            await self.proxy.open(way.name, way.channel.take())

    async def close(self, name: str) -> None:
        """End every connection of a replica without processes. Idempotent.

        Raises:
            NetworkFailed: Something is left.
        """
        if self.proxy is not None:
            await self.proxy.close(name)
        if self.links is not None:
            await self.links.detach(name)
