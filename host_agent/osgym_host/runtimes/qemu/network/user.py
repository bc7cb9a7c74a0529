"""User-mode networking: the guest reaches nothing, the host reaches one port of it. Needs no rights."""

from __future__ import annotations

import os
import socket
from collections.abc import Collection

from osgym_host.runtimes.base import Egress, RuntimeUnsupported, TcpAddress
from osgym_host.runtimes.qemu.argv import GUEST_PORT, UserNet
from osgym_host.runtimes.qemu.network.base import Attachment, Network, NetworkKind

_REMEDY = "Use network: tap (as root), which has egress policies."


class UserNetwork(Network):
    """QEMU's own network (libslirp) with `restrict=on` and one forwarded port.

    Args:
        forwards: As `Launcher.forwards`: QEMU has a network of its own, so a listening socket of the
            host is handed to whatever passes connections on to it.
    """

    def __init__(self, *, forwards: bool) -> None:
        """Nothing is opened before `attach`."""
        self._forwards = forwards
        self._listeners: dict[str, int] = {}

    @property
    def kind(self) -> NetworkKind:
        """User-mode networking."""
        return NetworkKind.USER

    @property
    def egress(self) -> frozenset[Egress]:
        """Nothing can be allowed: this network knows no rules."""
        return frozenset({Egress.NONE})

    @property
    def notes(self) -> tuple[str, ...]:
        """How to get what this kind cannot."""
        return (f"Egress of virtual machines is none. {_REMEDY}",)

    async def start(self) -> None:
        """Nothing is needed."""

    async def attach(self, name: str) -> Attachment:
        """Choose where the guest agent will be reached."""
        if not self._forwards:
            return Attachment(name, UserNet())
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM | socket.SOCK_CLOEXEC) as sock:
            sock.bind(("127.0.0.1", 0))
            sock.listen(64)
            port = int(sock.getsockname()[1])
            listener = sock.detach()
        self._listeners[name] = listener
        return Attachment(
            name,
            UserNet(host_port=GUEST_PORT),
            guest_listener=listener,
            guest=TcpAddress("127.0.0.1", port),
        )

    async def started(self, attachment: Attachment) -> None:
        """Close our copy of the listening socket."""
        self._close(attachment.name)

    async def allow(self, name: str, egress: Egress) -> None:
        """Only `none` is possible."""
        if egress is not Egress.NONE:
            raise RuntimeUnsupported(f"user-mode networking has no egress {egress}", remedy=_REMEDY)

    async def detach(self, name: str) -> None:
        """Nothing is left but perhaps our copy of the socket."""
        self._close(name)

    async def adopt(self, name: str, egress: Egress) -> TcpAddress | None:
        """The port is in the caller's record."""
        return None

    async def reap(self, keep: Collection[str] = ()) -> int:
        """Nothing outlives the processes."""
        return 0

    async def stop(self) -> None:
        """Close what is open."""
        for name in tuple(self._listeners):
            self._close(name)

    def _close(self, name: str) -> None:
        listener = self._listeners.pop(name, None)
        if listener is not None:
            os.close(listener)
