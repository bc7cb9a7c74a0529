"""User-mode networking: the guest reaches nothing, the host reaches one port of it. Needs no rights."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Collection

from osgym_host.addresses import TcpAddress
from osgym_host.runtimes.base import Egress, RuntimeUnsupported
from osgym_host.runtimes.qemu.machine import GUEST_PORT, UserNet
from osgym_host.runtimes.qemu.network.base import Attachment, Network
from osgym_host.runtimes.qemu.network.tap import clear_taps, taps_possible

_LOOPBACK = "127.0.0.1"
_REMEDY = "Use network: tap (as root), which has egress policies."


class UserNetwork(Network):
    """QEMU's own network (libslirp) with `restrict=on` and one forwarded port.

    Args:
        forwards: QEMU runs in a container without network, so a listening socket of the host is
            handed to what passes connections on to it.
        mark: Of the instance, by which taps of a previous host agent are found.
    """

    def __init__(self, *, forwards: bool, mark: str | None = None) -> None:
        """Nothing is opened before `attach`."""
        self._forwards = forwards
        self._mark = mark
        self._listeners: dict[str, int] = {}

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
            sock.bind((_LOOPBACK, 0))
            sock.listen(64)
            port = int(sock.getsockname()[1])
            listener = sock.detach()
        self._listeners[name] = listener
        return Attachment(
            name,
            UserNet(host_port=GUEST_PORT),
            guest_listener=listener,
            guest=TcpAddress(_LOOPBACK, port),
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

    async def adopt(self, name: str, egress: Egress, guest: TcpAddress) -> TcpAddress | None:
        """Go on with the port, which outlives the host agent as the machine does; refuse a tap."""
        return guest if guest.host == _LOOPBACK and egress is Egress.NONE else None

    async def reap(self, keep: Collection[str] = ()) -> int:
        """Nothing of ours outlives the processes, but the previous host agent may have had taps."""
        if self._mark is None or not taps_possible():
            return 0
        return await asyncio.to_thread(clear_taps, self._mark)

    async def stop(self) -> None:
        """Close what is open."""
        for name in tuple(self._listeners):
            self._close(name)

    def _close(self, name: str) -> None:
        listener = self._listeners.pop(name, None)
        if listener is not None:
            os.close(listener)
