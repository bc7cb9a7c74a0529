"""Links of one instance and the host's rules for their traffic, the same for every runtime.

A link is a veth: one end on the host, the other in the network namespace of a machine or replica. Links
are routed, not bridged, so replicas share no network, and every packet passes the host's rules
(`rules.py`). Links and the table carry the instance's mark, so what a killed host agent leaves is found by
name, and links say by their alias whom they serve. How links are made is the runtime's.
"""

from __future__ import annotations

import asyncio
import functools
import ipaddress
import os
import re
import shutil
from abc import ABC, abstractmethod
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Generic, TypeVar

from osgym_host.core.egress import Allowlist
from osgym_host.runtimes.base import Egress, RuntimeUnsupported
from osgym_host.runtimes.egress import rules, tools
from osgym_host.runtimes.egress.links import LINK_PREFIX, Link, link_of, parse_links, slots_in
from osgym_host.runtimes.egress.resolver import GuestResolver, NameLookup
from osgym_host.runtimes.egress.tools import NetworkFailed

DEFAULT_LINKS = "198.18.0.0/15"
"""Default network of links: reserved for tests of network devices (RFC 2544), so hosts seldom use it.
Each link takes two addresses: room for 65,536 machines."""

_THREADS = 4
_FORWARDING = Path("/proc/sys/net/ipv4/ip_forward")
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class LinkOptions:
    """Network of the links, and the targets of their egress.

    Attributes:
        allowlist: Targets of the policy `allowlist`.
        network: IPv4 network of the links; all instances of a host may use the same.
        names: Resolver for guests, closed with the links; the host's resolver by default.
    """

    allowlist: Allowlist = field(default_factory=Allowlist)
    network: str = DEFAULT_LINKS
    names: NameLookup | None = None


@dataclass
class LinkSlot:
    """Link in use by the machine or replica of that name."""

    link: Link
    machine: str
    egress: Egress = Egress.NONE
    resolver: GuestResolver | None = None


SlotT = TypeVar("SlotT", bound=LinkSlot)


class LinkGate(ABC, Generic[SlotT]):
    """Links and rules of one instance.

    Args:
        mark: Mark of the instance, unique on this host (`cgroups.instance_group_name`).
    """

    who = "Replicas"
    """Whom messages speak of."""
    instead = "leave egress at none"
    """What messages say can be done without egress."""

    def __init__(self, mark: str, options: LinkOptions | None = None) -> None:
        options = options or LinkOptions()
        self._mark = mark
        self._table = table_name(mark)
        self._allowlist = options.allowlist
        self._range = options.network
        self._links = ipaddress.IPv4Network(options.network)
        self._egress: frozenset[Egress] = frozenset()
        self._notes: tuple[str, ...] = ()
        self._slots: dict[str, SlotT] = {}
        self._names = options.names or NameLookup()
        self._pool: ThreadPoolExecutor | None = None
        self._rules = asyncio.Lock()
        self._reserving = asyncio.Lock()

    @property
    def egress(self) -> frozenset[Egress]:
        """Egress policies that this host can carry out: all, or `none` only. Valid after `start`."""
        return self._egress

    @property
    def notes(self) -> tuple[str, ...]:
        """Restrictions on this host, for people. Valid after `start`."""
        return self._notes

    @abstractmethod
    def _make(self, link: Link, machine: str) -> SlotT:
        """Make a link that is not up yet. Blocking.

        Raises:
            FileExistsError: The slot is in use by others.
            NetworkFailed: It cannot be made; nothing of it is left.
        """

    def _unmake(self, link: Link) -> None:
        """Remove the result of `_make`, as far as it exists. Blocking."""
        tools.remove_link(link)

    async def start(self) -> None:
        """Check the host and make the instance's table. Idempotent.

        Links of a previous host agent lead nowhere from now on.

        Raises:
            RuntimeUnsupported: This host has no egress by links; the message says what to do.
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
        self._egress, self._notes = await self._do(self._survey)

    def _check(self) -> None:
        check_tools(self.instead)
        try:
            used = [
                ipaddress.IPv4Interface(address).network
                for name, address in tools.host_addresses()
                if not name.startswith(LINK_PREFIX)
            ]
            parse_links(self._range, used)
        except ValueError as exc:
            raise RuntimeUnsupported(
                str(exc), remedy="Set egress_network to a network that this host does not use."
            ) from exc
        try:
            found = tools.find_links(self._mark, LINK_PREFIX)
            script = rules.host_table(self._table, self._allowlist.networks)
            # In the same step, so that machines of a previous host agent reach nothing rather than all.
            for entry in found:
                script += rules.add_slot(self._table, link_of(entry.slot, self._links))
            tools.nft(script)
        except NetworkFailed as exc:
            raise RuntimeUnsupported(
                f"the kernel or nft refuses OSGym's firewall rules: {exc}",
                remedy=f"Network namespaces, veth and nftables with NAT are needed; or {self.instead}.",
            ) from exc

    def _survey(self) -> tuple[frozenset[Egress], tuple[str, ...]]:
        """Return the policies that can be carried out, and the obstacles to the others."""
        if not forwards():
            note = (
                f"{self.who} reach nothing: this host does not forward packets. Set sysctl "
                "net.ipv4.ip_forward=1."
            )
            return frozenset({Egress.NONE}), (note,)
        notes = [
            f"The firewall table {table} drops forwarded packets by default: let {LINK_PREFIX}* through."
            for table in tools.dropping_tables("forward", self._table)
        ]
        return frozenset(Egress), tuple(notes)

    async def _reserve(self, name: str) -> SlotT:
        """Take a link that nobody on this host has, with rules that allow nothing yet."""
        async with self._reserving:
            slot = await self._do(self._reserve_now, name)
        async with self._rules:
            await self._do(tools.nft, rules.add_slot(self._table, slot.link))
        return slot

    def _reserve_now(self, name: str) -> SlotT:
        taken = {slot.link.slot for slot in self._slots.values()}
        for number in range(slots_in(self._links)):
            if number in taken:
                continue
            try:
                slot = self._make(link_of(number, self._links), name)
            except FileExistsError:
                continue
            # Noted here and not by the caller, who may be cancelled: then it is found and removed.
            self._slots[name] = slot
            return slot
        raise NetworkFailed(f"all links in {self._links} are in use (egress_network is too small)")

    async def allow(self, name: str, egress: Egress) -> None:
        """Set the egress policy of a link, and resolve names for it where it has egress.

        Raises:
            RuntimeUnsupported: The policy is not among `egress`.
            NetworkFailed: It could not be set; no more than before is allowed.
        """
        slot = self._slots.get(name)
        if slot is None:
            raise NetworkFailed(f"{name} has no network link")
        if egress not in self._egress:
            raise RuntimeUnsupported(f"egress {egress} is not possible on this host: {' '.join(self._notes)}")
        await self._stop_resolver(slot)
        async with self._rules:
            await self._do(tools.nft, rules.set_policy(self._table, slot.link, egress))
        slot.egress = egress
        await self._answer(slot)

    async def _answer(self, slot: LinkSlot) -> None:
        if slot.egress is Egress.NONE:
            return
        if slot.egress is Egress.OPEN:
            slot.resolver = await GuestResolver.serve(slot.link, self._names, None, None)
            return

        async def learn(addresses: list[str]) -> None:
            async with self._rules:
                await self._do(tools.nft, rules.learn(self._table, slot.link, addresses))

        slot.resolver = await GuestResolver.serve(slot.link, self._names, self._allowlist, learn)

    async def _stop_resolver(self, slot: LinkSlot) -> None:
        if slot.resolver is not None:
            await slot.resolver.close()
            slot.resolver = None

    async def detach(self, name: str) -> None:
        """Remove link and rules of a machine or replica whose processes are gone. Idempotent.

        Raises:
            NetworkFailed: Something is left; calling again tries again.
        """
        slot = self._slots.get(name)
        if slot is None:
            return
        await self._stop_resolver(slot)
        await self._remove(slot.link)
        self._slots.pop(name, None)

    async def _remove(self, link: Link) -> None:
        """Remove a link, and its rules after it: without the link nothing passes."""
        await self._do(self._unmake, link)
        async with self._rules:
            await self._do(tools.nft, rules.remove_slot(self._table, link))

    async def _remove_table(self) -> None:
        await self._do(tools.nft, f"add table inet {self._table}\ndelete table inet {self._table}\n")

    async def close(self) -> None:
        """Stop threads and resolvers; connections go on without names. Idempotent."""
        for slot in self._slots.values():
            await self._stop_resolver(slot)
        self._names.close()
        if self._pool is not None:
            self._pool.shutdown(wait=False)
            self._pool = None

    async def _do(self, call: Callable[..., _T], *args: object) -> _T:
        """Run a blocking call in a thread of the gate. Cancellation does not interrupt it."""
        if self._pool is None:
            raise NetworkFailed("the network of replicas was not started")
        loop = asyncio.get_running_loop()
        running = loop.run_in_executor(self._pool, functools.partial(call, *args))
        try:
            return await asyncio.shield(running)
        except asyncio.CancelledError:
            await asyncio.wait([running])
            raise


def check_tools(instead: str) -> None:
    """Check that this user may make links, and that the tools are installed.

    Raises:
        RuntimeUnsupported: One of them is missing; the message says what to do.
    """
    if os.geteuid() != 0:
        raise RuntimeUnsupported(
            "only root can make network namespaces and their firewall rules",
            remedy=f"Run the host agent as root, or {instead}.",
        )
    missing = [tool for tool in ("ip", "nft") if shutil.which(tool) is None]
    if missing:
        raise RuntimeUnsupported(
            f"not installed: {', '.join(missing)}", remedy="Install the packages iproute2 and nftables."
        )


def forwards() -> bool:
    """Return whether this host forwards IPv4 packets."""
    return _FORWARDING.read_text().strip() == "1"


def table_name(mark: str) -> str:
    """Return a table name for nft: letters, digits and underscores."""
    return re.sub(r"[^A-Za-z0-9]", "_", mark)
