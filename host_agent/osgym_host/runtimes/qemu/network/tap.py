"""A tap for each machine in a network namespace of its own, with rules on what it may reach.

    guest 10.0.2.15 ── tap0 (10.0.2.2) │ machine's namespace │ up0 ── veth ── osgym<n> │ host │ ── world

All guests have the same addresses, as they were frozen; each is alone in its namespace, which translates
between them and the two addresses of its link. Links are routed, not bridged, so machines share no
network, and every packet passes the host's rules (`rules.py`). We reach the guest agent from inside its
namespace, where nobody else is. Namespaces, links and the table carry the instance's mark, so what a
killed host agent leaves is found by name, and links say by their alias whose machine they serve.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import ipaddress
import os
import re
import shutil
from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from osgym_host.addresses import EnclosedAddress, GuestAddress, TcpAddress
from osgym_host.core.egress import Allowlist
from osgym_host.runtimes.base import Egress, RuntimeUnsupported
from osgym_host.runtimes.qemu.machine import (
    GUEST_IP,
    GUEST_PORT,
    AnyNamespace,
    GuestReach,
    NetworkNamespace,
    TapNet,
)
from osgym_host.runtimes.qemu.network import namespaces, rules
from osgym_host.runtimes.qemu.network.base import (
    Attachment,
    FoundGuest,
    Network,
    NetworkFailed,
    hold_namespace,
)
from osgym_host.runtimes.qemu.network.links import LINK_PREFIX, Link, link_of, parse_links, slots_in
from osgym_host.runtimes.qemu.network.resolver import GuestResolver, NameLookup

DEFAULT_LINKS = "198.18.0.0/15"
"""Where links are taken from: set aside for tests of network devices (RFC 2544), so hosts seldom use it.
Each needs two addresses: room for 65,536 machines."""

TAP_FD = 6
"""Descriptor at which QEMU finds its tap."""

_LOOPBACK = "127.0.0.1"
_THREADS = 4
_FORWARDING = Path("/proc/sys/net/ipv4/ip_forward")
_T = TypeVar("_T")


@dataclass
class LinkSlot:
    """A link in use. `tap` is our descriptor until the machine has its own; `inside` its namespace."""

    link: Link
    machine: str
    egress: Egress = Egress.NONE
    tap: int | None = None
    inside: NetworkNamespace | None = None
    resolver: GuestResolver | None = None


class TapNetwork(Network):
    """Taps and rules of one instance.

    Args:
        mark: Of the instance, unlike any other's on this host (`cgroups.instance_group_name`).
        allowlist: What the policy `allowlist` allows.
        links: IPv4 network that links are taken from; the same for all instances of a host is fine.
        names: Looks names up for guests; closed by `stop`.
    """

    def __init__(
        self,
        mark: str,
        *,
        allowlist: Allowlist | None = None,
        links: str = DEFAULT_LINKS,
        names: NameLookup | None = None,
    ) -> None:
        """Nothing is touched before `start`."""
        self._mark = mark
        self._table = table_name(mark)
        self._allowlist = allowlist or Allowlist()
        self._range = links
        self._links = ipaddress.IPv4Network(links)
        self._egress: frozenset[Egress] = frozenset()
        self._notes: tuple[str, ...] = ()
        self._slots: dict[str, LinkSlot] = {}
        self._users: dict[str, AnyNamespace] = {}
        self._names = names or NameLookup()
        self._pool: ThreadPoolExecutor | None = None
        self._rules = asyncio.Lock()
        self._reserving = asyncio.Lock()

    @property
    def egress(self) -> frozenset[Egress]:
        """All policies, but `none` only where the host does not forward."""
        return self._egress

    @property
    def notes(self) -> tuple[str, ...]:
        """What is missing here."""
        return self._notes

    async def start(self) -> None:
        """Check the host and make the instance's table.

        Machines of a previous host agent reach nothing until they are adopted.
        """
        if self._pool is not None:
            return
        pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="osgym-network")
        try:
            await asyncio.get_running_loop().run_in_executor(pool, self._check)
        except BaseException:
            pool.shutdown(wait=False)
            raise
        self._pool = pool
        egress, notes = await self._do(self._survey)
        self._egress, self._notes = egress, notes

    def _check(self) -> None:
        """Whether this host can do it at all, found out by doing it."""
        if os.geteuid() != 0:
            raise RuntimeUnsupported(
                "network namespaces and their rules are made by root",
                remedy="Run the host agent as root, or use network: user.",
            )
        missing = [tool for tool in ("ip", "nft") if shutil.which(tool) is None]
        if missing:
            raise RuntimeUnsupported(
                f"not installed: {', '.join(missing)}", remedy="Install the packages iproute2 and nftables."
            )
        if not Path("/dev/net/tun").exists():
            raise RuntimeUnsupported("there is no /dev/net/tun", remedy="Load the module tun (modprobe tun).")
        try:
            used = [
                ipaddress.IPv4Interface(address).network
                for name, address in namespaces.host_addresses()
                if not name.startswith(LINK_PREFIX)
            ]
            parse_links(self._range, used)
        except ValueError as exc:
            raise RuntimeUnsupported(str(exc), remedy="Set another network for links.") from exc
        try:
            found = namespaces.find_links(self._mark, LINK_PREFIX)
            script = rules.host_table(self._table, self._allowlist.networks)
            # In the same step, so that machines of a previous host agent reach nothing rather than all.
            for entry in found:
                script += rules.add_slot(self._table, link_of(entry.slot, self._links))
            namespaces.nft(script)
        except NetworkFailed as exc:
            raise RuntimeUnsupported(
                f"the kernel or nft refuses our rules: {exc}",
                remedy="Network namespaces, veth and nftables with NAT are needed; or use network: user.",
            ) from exc

    def _survey(self) -> tuple[frozenset[Egress], tuple[str, ...]]:
        """Return which policies can be carried out, and what stands in the way of the others."""
        if _FORWARDING.read_text().strip() != "1":
            note = (
                "Virtual machines reach nothing: this host does not forward (sysctl net.ipv4.ip_forward=1)."
            )
            return frozenset({Egress.NONE}), (note,)
        notes = [
            f"The firewall table {table} drops forwarded packets by default: let {LINK_PREFIX}* through."
            for table in namespaces.dropping_tables("forward", self._table)
        ]
        return frozenset(Egress), tuple(notes)

    async def attach(self, name: str) -> Attachment:
        """Make namespace, link and tap; nothing is reached yet."""
        try:
            async with self._reserving:
                slot = await self._do(self._reserve, name)
            async with self._rules:
                await self._do(namespaces.nft, rules.add_slot(self._table, slot.link))
            tap = await self._do(self._set_up, slot)
        except BaseException:
            with contextlib.suppress(NetworkFailed):
                await asyncio.shield(self.detach(name))
            raise
        return Attachment(name, TapNet(fd=TAP_FD), fds={TAP_FD: tap}, guest=self._address(slot))

    def _address(self, slot: LinkSlot) -> EnclosedAddress:
        """Return where the guest agent is reached: at its own address, from inside its namespace."""
        if slot.inside is None:
            slot.inside = NetworkNamespace.at(namespaces.NETNS_FOLDER / self._namespace(slot.link))
        return EnclosedAddress(GUEST_IP, GUEST_PORT, slot.inside)

    def _reserve(self, name: str) -> LinkSlot:
        """Make a namespace and a link of the first slot that nobody on this host has."""
        taken = {slot.link.slot for slot in self._slots.values()}
        alias = f"{self._mark}/{name}"
        for number in range(slots_in(self._links)):
            if number in taken:
                continue
            link = link_of(number, self._links)
            try:
                namespaces.make_link(link, self._namespace(link), alias)
            except FileExistsError:
                continue
            # Noted here and not by the caller, who may be cancelled: then it is found and removed.
            slot = self._slots[name] = LinkSlot(link, name)
            return slot
        raise NetworkFailed(f"all links in {self._links} are in use")

    def _set_up(self, slot: LinkSlot) -> int:
        namespaces.bring_up_link(slot.link)
        slot.tap = namespaces.set_up_namespace(slot.link, self._namespace(slot.link))
        return slot.tap

    def _namespace(self, link: Link) -> str:
        return f"{self._mark}-{link.slot}"

    async def started(self, attachment: Attachment) -> None:
        """Close our copy of the tap."""
        slot = self._slots.get(attachment.name)
        if slot is not None and slot.tap is not None:
            os.close(slot.tap)
            slot.tap = None

    async def allow(self, name: str, egress: Egress) -> None:
        """Set the rules of the machine's link, and answer its questions for names if it may go out."""
        slot = self._slots.get(name)
        if slot is None:
            raise NetworkFailed(f"{name} has no connection")
        if egress not in self._egress:
            raise RuntimeUnsupported(f"egress {egress} cannot be had here: {' '.join(self._notes)}")
        await self._stop_resolver(slot)
        async with self._rules:
            await self._do(namespaces.nft, rules.set_policy(self._table, slot.link, egress))
        slot.egress = egress
        await self._answer(slot)

    async def _answer(self, slot: LinkSlot) -> None:
        """Serve names to a machine that may go out."""
        if slot.egress is Egress.NONE:
            return
        if slot.egress is Egress.OPEN:
            slot.resolver = await GuestResolver.serve(slot.link, self._names, None, None)
            return

        async def learn(addresses: list[str]) -> None:
            async with self._rules:
                await self._do(namespaces.nft, rules.learn(self._table, slot.link, addresses))

        slot.resolver = await GuestResolver.serve(slot.link, self._names, self._allowlist, learn)

    async def _stop_resolver(self, slot: LinkSlot) -> None:
        if slot.resolver is not None:
            await slot.resolver.close()
            slot.resolver = None

    async def detach(self, name: str) -> None:
        """Remove link, namespace and rules of a machine."""
        user = self._users.pop(name, None)
        if user is not None:
            user.close()
        slot = self._slots.get(name)
        if slot is None:
            return
        await self._stop_resolver(slot)
        if slot.tap is not None:
            os.close(slot.tap)
            slot.tap = None
        if slot.inside is not None:
            slot.inside.close()
            slot.inside = None
        await self._remove(slot.link)
        self._slots.pop(name, None)

    async def _remove(self, link: Link) -> None:
        """The link goes first: without it nothing passes, whatever the rules."""
        await self._do(namespaces.remove_link, link, self._namespace(link))
        async with self._rules:
            await self._do(namespaces.nft, rules.remove_slot(self._table, link))

    async def adopt(self, name: str, egress: Egress, guest: FoundGuest) -> GuestAddress | None:
        """Find the link by its alias, set its rules anew and answer its questions again.

        A machine with user-mode networking goes on with that.
        """
        if guest.host == _LOOPBACK:
            return self._adopt_user(name, guest) if egress is Egress.NONE else None
        if egress not in self._egress:
            return None
        for found in await self._do(namespaces.find_links, self._mark, LINK_PREFIX):
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
        """Go on with a machine that has user-mode networking."""
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
        """Remove links and namespaces of the instance that no machine in `keep` and none of ours has."""
        kept = {slot.link.slot for slot in self._slots.values()}
        removed: set[int] = set()
        for found in await self._do(namespaces.find_links, self._mark, LINK_PREFIX):
            if found.machine in keep or found.slot in kept:
                kept.add(found.slot)
                continue
            await self._remove(link_of(found.slot, self._links))
            removed.add(found.slot)
        for name in await self._do(namespaces.find_namespaces, self._mark):
            number = int(name.rpartition("-")[2])
            if number not in kept and number not in removed:
                await self._do(namespaces.ip_batch, [f"netns delete {name}"])
                removed.add(number)
        return len(removed)

    async def stop(self) -> None:
        """Remove every connection, then the table."""
        if self._pool is None:
            return
        for name in (*self._slots, *self._users):
            await self.detach(name)
        await self.reap()
        await self._do(namespaces.nft, f"add table inet {self._table}\ndelete table inet {self._table}\n")
        await self.close()

    async def close(self) -> None:
        """Let go of threads and sockets; connections go on without names. Idempotent."""
        for slot in self._slots.values():
            await self._stop_resolver(slot)
            if slot.inside is not None:
                slot.inside.close()
                slot.inside = None
        self._names.close()
        if self._pool is not None:
            self._pool.shutdown(wait=False)
            self._pool = None

    async def _do(self, call: Callable[..., _T], *args: object) -> _T:
        """Carry out a blocking call in one of our threads. It is not interrupted when we are cancelled."""
        if self._pool is None:
            raise NetworkFailed("the network was not started")
        loop = asyncio.get_running_loop()
        running = loop.run_in_executor(self._pool, functools.partial(call, *args))
        try:
            return await asyncio.shield(running)
        except asyncio.CancelledError:
            await asyncio.wait([running])
            raise


def taps_possible() -> bool:
    """Return whether taps can be there at all: only root with these tools makes them."""
    return os.geteuid() == 0 and all(shutil.which(tool) is not None for tool in ("ip", "nft"))


def clear_taps(mark: str) -> int:
    """Remove every link and namespace of an instance, and its table. Blocking.

    Returns:
        How many links and namespaces there were.

    Raises:
        NetworkFailed: Something is left.
    """
    links = namespaces.find_links(mark, LINK_PREFIX)
    for found in links:
        namespaces.ip_batch([f"link delete dev {LINK_PREFIX}{found.slot}"])
    names = namespaces.find_namespaces(mark)
    for name in names:
        namespaces.ip_batch([f"netns delete {name}"])
    if links or names:
        table = table_name(mark)
        namespaces.nft(f"add table inet {table}\ndelete table inet {table}\n")
    return max(len(links), len(names))


def table_name(mark: str) -> str:
    """Return a name that nft takes: letters, digits and underscores."""
    return re.sub(r"[^A-Za-z0-9]", "_", mark)
