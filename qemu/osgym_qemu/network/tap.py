"""Tap for each machine in a network namespace of its own, with rules for its egress.

    guest 10.0.2.15 ── tap0 (10.0.2.2) │ machine's namespace │ up0 ── veth ── osgym<n> │ host │ ── world

All guests have the same addresses, as they were frozen; each is alone in its namespace, which translates
between them and the two addresses of its link. Links are routed, not bridged, so machines share no
network, and every packet passes the host's rules (`egress/rules.py`). We reach the guest agent from
inside its namespace, where nobody else is. Namespaces, links and the table carry the instance's mark,
so what a killed host agent leaves is found by name, and links say by their alias whose machine they serve.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from osgym_host.addresses import EnclosedAddress, GuestAddress, TcpAddress
from osgym_host.runtimes.base import Egress, RuntimeUnsupported
from osgym_host.runtimes.egress import gate, tools
from osgym_host.runtimes.egress.gate import DEFAULT_LINKS, LinkGate, LinkOptions, check_tools, table_name
from osgym_host.runtimes.egress.links import LINK_PREFIX, Link, link_of
from osgym_host.runtimes.egress.tools import NetworkFailed
from osgym_qemu.machine.argv import GUEST_IP, GUEST_PORT, TapNet
from osgym_qemu.machine.namespace import AnyNamespace, NetworkNamespace
from osgym_qemu.machine.records import GuestReach
from osgym_qemu.network import namespaces
from osgym_qemu.network.base import Attachment, FoundGuest, Network, hold_namespace

__all__ = ["DEFAULT_LINKS", "LinkSlot", "TapNetwork", "clear_taps", "table_name", "taps_possible"]

TAP_FD = 6
"""Descriptor at which QEMU finds its tap."""

_LOOPBACK = "127.0.0.1"


@dataclass
class LinkSlot(gate.LinkSlot):
    """Link in use. `tap` is the host's descriptor until the machine has its own; `inside` its namespace."""

    tap: int | None = None
    inside: NetworkNamespace | None = None


class TapNetwork(LinkGate[LinkSlot], Network):
    """Taps and rules of one instance. The arguments are those of `LinkGate`."""

    who = "Virtual machines"
    instead = "set qemu.network to user"

    def __init__(self, mark: str, options: LinkOptions | None = None) -> None:
        super().__init__(mark, options)
        self._users: dict[str, AnyNamespace] = {}

    def _check(self) -> None:
        check_tools(self.instead)
        if not Path("/dev/net/tun").exists():
            raise RuntimeUnsupported(
                "/dev/net/tun does not exist", remedy="Load the module tun (modprobe tun)."
            )
        super()._check()

    async def attach(self, name: str) -> Attachment:
        try:
            slot = await self._reserve(name)
            tap = await self._do(self._set_up, slot)
        except BaseException:
            with contextlib.suppress(NetworkFailed):
                await asyncio.shield(self.detach(name))
            raise
        return Attachment(name, TapNet(fd=TAP_FD), fds={TAP_FD: tap}, guest=self._address(slot))

    def _address(self, slot: LinkSlot) -> EnclosedAddress:
        """Return the address of the guest agent: its own, inside its namespace."""
        if slot.inside is None:
            slot.inside = NetworkNamespace.at(tools.NETNS_FOLDER / self._namespace(slot.link))
        return EnclosedAddress(GUEST_IP, GUEST_PORT, slot.inside)

    def _make(self, link: Link, machine: str) -> LinkSlot:
        namespaces.make_link(link, self._namespace(link), f"{self._mark}/{machine}")
        return LinkSlot(link, machine)

    def _unmake(self, link: Link) -> None:
        tools.remove_link(link)
        namespaces.remove_namespace(self._namespace(link))

    def _set_up(self, slot: LinkSlot) -> int:
        tools.bring_up_link(slot.link)
        slot.tap = namespaces.set_up_namespace(slot.link, self._namespace(slot.link))
        return slot.tap

    def _namespace(self, link: Link) -> str:
        return f"{self._mark}-{link.slot}"

    async def started(self, attachment: Attachment) -> None:
        slot = self._slots.get(attachment.name)
        if slot is not None and slot.tap is not None:
            os.close(slot.tap)
            slot.tap = None

    async def detach(self, name: str) -> None:
        user = self._users.pop(name, None)
        if user is not None:
            user.close()
        slot = self._slots.get(name)
        if slot is not None:
            if slot.tap is not None:
                os.close(slot.tap)
                slot.tap = None
            if slot.inside is not None:
                slot.inside.close()
                slot.inside = None
        await super().detach(name)

    async def adopt(self, name: str, egress: Egress, guest: FoundGuest) -> GuestAddress | None:
        """Find the link by its alias, set its rules anew and resolve names for it again.

        A machine with user-mode networking goes on with that.
        """
        if guest.host == _LOOPBACK:
            return self._adopt_user(name, guest) if egress is Egress.NONE else None
        if egress not in self._egress:
            return None
        for found in await self._do(tools.find_links, self._mark, LINK_PREFIX):
            if found.machine == name:
                slot = LinkSlot(link_of(found.slot, self._links), name)
                self._slots[name] = slot
                # Older versions let the host in by the link, and nobody from inside.
                inside = self._namespace(slot.link)
                await self._do(namespaces.set_rules, slot.link, inside)
                await self.allow(name, egress)
                return self._address(slot)
        return None

    def _adopt_user(self, name: str, guest: FoundGuest) -> GuestAddress | None:
        match guest.reach:
            case GuestReach.PORT:
                return TcpAddress(guest.host, guest.port)
            case GuestReach.NAMESPACE:
                inside = hold_namespace(guest)
                if inside is not None:
                    self._users[name] = inside
                    return EnclosedAddress(guest.host, guest.port, inside)
        return None  # a container's socket is in a folder that the other network has

    async def reap(self, keep: Collection[str] = ()) -> int:
        kept = {slot.link.slot for slot in self._slots.values()}
        removed: set[int] = set()
        for found in await self._do(tools.find_links, self._mark, LINK_PREFIX):
            if found.machine in keep or found.slot in kept:
                kept.add(found.slot)
                continue
            await self._remove(link_of(found.slot, self._links))
            removed.add(found.slot)
        for name in await self._do(tools.find_namespaces, self._mark):
            number = int(name.rpartition("-")[2])
            if number not in kept and number not in removed:
                await self._do(tools.ip_batch, [f"netns delete {name}"])
                removed.add(number)
        return len(removed)

    async def stop(self) -> None:
        if self._pool is None:
            return
        for name in (*self._slots, *self._users):
            await self.detach(name)
        await self.reap()
        await self._remove_table()
        await self.close()

    async def close(self) -> None:
        for slot in self._slots.values():
            if slot.inside is not None:
                slot.inside.close()
                slot.inside = None
        await super().close()


def taps_possible() -> bool:
    """Return whether taps may exist: only root with these tools makes them."""
    return os.geteuid() == 0 and all(shutil.which(tool) is not None for tool in ("ip", "nft"))


def clear_taps(mark: str) -> int:
    """Remove every link and namespace of an instance, and its table. Blocking.

    Returns:
        Number of removed links and namespaces.

    Raises:
        NetworkFailed: Something is left.
    """
    links = tools.find_links(mark, LINK_PREFIX)
    for found in links:
        tools.ip_batch([f"link delete dev {LINK_PREFIX}{found.slot}"])
    names = tools.find_namespaces(mark)
    for name in names:
        tools.ip_batch([f"netns delete {name}"])
    if links or names:
        table = table_name(mark)
        tools.nft(f"add table inet {table}\ndelete table inet {table}\n")
    return max(len(links), len(names))
