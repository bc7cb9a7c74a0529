"""User-mode networking: the guest has no egress, and one port for the host agent. Needs no rights.

That port is nobody else's: QEMU listens inside a network namespace of its own, or inside a container, where
a unix socket leads. Where neither can be had, it is a port of the loopback interface, at which every user
of the host can knock; the guest agent's token keeps them out.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Collection
from pathlib import Path

from osgym_host.addresses import EnclosedAddress, GuestAddress, TcpAddress, UnixAddress, listen_at
from osgym_host.runtimes.base import Egress, RuntimeUnsupported
from osgym_host.runtimes.egress.tools import NetworkFailed
from osgym_qemu.machine.argv import GUEST_PORT, UserNet
from osgym_qemu.machine.namespace import AnyNamespace, try_to_make
from osgym_qemu.machine.records import GuestReach
from osgym_qemu.network.base import Attachment, FoundGuest, Network, hold_namespace
from osgym_qemu.network.tap import clear_taps, taps_possible

_LOOPBACK = "127.0.0.1"
_BACKLOG = 64
_REMEDY = "Set qemu.network to tap (as root), which supports egress."
_OPEN_NOTE = (
    "Every user of this host can connect to the guest agents of virtual machines (they need a token there)."
    " Run the host agent as root, or let users have user namespaces (sysctl user.max_user_namespaces) and"
    " install util-linux (nsenter): each machine then has a network namespace of its own."
)


class UserNetwork(Network):
    """QEMU's own network (libslirp) with `restrict=on` and one forwarded port.

    Args:
        folder: Folder of the instance; `start` makes one in it for the sockets of containers.
        forwards: True if QEMU runs in a container without network: a listening socket of the host is then
            handed to the container's forwarder.
        mark: Mark of the instance, by which taps of a previous host agent are found.
    """

    def __init__(self, folder: Path, *, forwards: bool, mark: str | None = None) -> None:
        self._sockets = folder / "sockets"
        self._forwards = forwards
        self._mark = mark
        self._listeners: dict[str, int] = {}
        self._namespaces: dict[str, AnyNamespace] = {}
        self._encloses = False

    @property
    def egress(self) -> frozenset[Egress]:
        return frozenset({Egress.NONE})

    @property
    def notes(self) -> tuple[str, ...]:
        closed = () if self._forwards or self._encloses else (_OPEN_NOTE,)
        return (f"Egress of virtual machines is none. {_REMEDY}", *closed)

    async def start(self) -> None:
        if self._forwards:
            self._sockets.mkdir(mode=0o700, exist_ok=True)
            return
        trial = await try_to_make()
        self._encloses = trial is not None
        if trial is not None:
            trial.close()

    async def attach(self, name: str) -> Attachment:
        if self._forwards:
            path = self._sockets / f"{name}.sock"
            self._listeners[name] = listener = listen_at(path, _BACKLOG).detach()
            backend = UserNet(host_port=GUEST_PORT)
            return Attachment(name, backend, guest_listener=listener, guest=UnixAddress(path))
        if not self._encloses:
            return Attachment(name, UserNet())
        namespace = await try_to_make()
        if namespace is None:
            raise NetworkFailed("no more network namespaces can be made (sysctl user.max_net_namespaces)")
        self._namespaces[name] = namespace
        guest = EnclosedAddress(_LOOPBACK, GUEST_PORT, namespace)
        return Attachment(name, UserNet(host_port=GUEST_PORT), namespace=namespace, guest=guest)

    async def started(self, attachment: Attachment) -> None:
        self._close_listener(attachment.name)

    async def allow(self, name: str, egress: Egress) -> None:
        if egress is not Egress.NONE:
            raise RuntimeUnsupported(f"qemu.network=user does not support egress {egress}", remedy=_REMEDY)

    async def detach(self, name: str) -> None:
        self._close_listener(name)
        namespace = self._namespaces.pop(name, None)
        if namespace is not None:
            namespace.close()
        (self._sockets / f"{name}.sock").unlink(missing_ok=True)

    async def adopt(self, name: str, egress: Egress, guest: FoundGuest) -> GuestAddress | None:
        """Go on with a namespace or socket, which outlives the host agent with the machine; refuse a tap."""
        if egress is not Egress.NONE:
            return None
        if guest.reach is GuestReach.SOCKET:
            path = self._sockets / f"{name}.sock"
            return UnixAddress(path) if path.is_socket() else None
        if guest.host != _LOOPBACK:
            return None
        if guest.reach is GuestReach.PORT:
            return TcpAddress(guest.host, guest.port)
        namespace = await asyncio.to_thread(hold_namespace, guest)
        if namespace is None:
            return None
        self._namespaces[name] = namespace
        return EnclosedAddress(guest.host, guest.port, namespace)

    async def reap(self, keep: Collection[str] = ()) -> int:
        """Remove sockets and taps of a previous host agent; the rest ended with the processes."""
        if self._sockets.is_dir():
            for path in self._sockets.iterdir():
                if path.stem not in keep:
                    path.unlink(missing_ok=True)
        if self._mark is None or not taps_possible():
            return 0
        return await asyncio.to_thread(clear_taps, self._mark)

    async def stop(self) -> None:
        for name in {*self._listeners, *self._namespaces}:
            await self.detach(name)
        with contextlib.suppress(FileNotFoundError):
            self._sockets.rmdir()

    def _close_listener(self, name: str) -> None:
        listener = self._listeners.pop(name, None)
        if listener is not None:
            os.close(listener)
