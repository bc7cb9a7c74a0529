"""Links of replicas that may go out: a veth from the host into each replica's own network namespace.

    replica │ up0 ── veth ── osgym<n> │ host, its rules ── world

The namespace belongs to the user namespace around the replica's own, so root inside changes neither its
addresses nor its routes; and the host's rules, which look at the link and at nothing that the replica says,
hold whatever it does. Its name server is the host's end of its link. With egress none there is no link.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from dataclasses import dataclass
from pathlib import Path

from osgym_host.runtimes.base import Egress, RuntimeUnsupported
from osgym_host.runtimes.egress import gate, tools
from osgym_host.runtimes.egress.gate import LinkGate, LinkOptions
from osgym_host.runtimes.egress.links import LINK_PREFIX, Link, link_of
from osgym_host.runtimes.egress.tools import NetworkFailed

INSIDE = "up0"
"""Name of a link's end in the replica."""


@dataclass
class LinkSlot(gate.LinkSlot):
    """Link in use.

        Attributes:
            namespace: Descriptor that keeps the replica's network until the link is removed. Without it the
    kernel
                would free the link's name, and another host agent could take it.
    """

    namespace: int = -1


class ReplicaNetwork(LinkGate[LinkSlot]):
    """Links and rules of the replicas of one instance. Every method may be called concurrently.

    Args:
        needed: `start` refuses a host that cannot do this policy.
        record: A file that is there as long as something of this instance may be on the host.

    The others are those of `LinkGate`.
    """

    who = "Replicas"
    instead = "set egress_by to proxy, or leave egress at none"

    def __init__(
        self,
        mark: str,
        options: LinkOptions | None = None,
        *,
        needed: Egress = Egress.NONE,
        record: Path | None = None,
    ) -> None:
        super().__init__(mark, options)
        self._needed = needed
        self._record = record

    async def start(self) -> None:
        """Check the host, make the table and remove links that a killed host agent left.

        Raises:
            RuntimeUnsupported: Egress cannot be had here; the message says what to do.
            NetworkFailed: Something of a former host agent cannot be removed.
        """
        former = self._record is not None and self._record.exists()
        if self._record is not None:
            self._record.touch(mode=0o600)
        try:
            await super().start()
        except BaseException:
            if self._record is not None and not former:  # the table is made last, so there is nothing
                self._record.unlink(missing_ok=True)
            raise
        try:
            if self._needed not in self.egress:
                raise RuntimeUnsupported(
                    f"egress {self._needed} is not possible: this host does not forward packets.",
                    remedy=f"As root: sysctl -w net.ipv4.ip_forward=1, or {self.instead}.",
                )
            await self.reap()
        except BaseException:
            with contextlib.suppress(NetworkFailed):
                await self.stop()
            raise

    async def reserve(self, name: str) -> Link:
        """Make a link for a replica that is about to be made; nothing passes it yet.

        Raises:
            NetworkFailed: It could not be made; `detach` removes the rest.
        """
        return (await self._reserve(name)).link

    def _make(self, link: Link, machine: str) -> LinkSlot:
        if Path(f"/sys/class/net/{link.name}").exists():
            raise FileExistsError(link.name)
        try:
            tools.ip_batch(
                [
                    f"link add {link.name} type veth peer name {_far_end(link)}",
                    f"link set dev {link.name} alias {self._mark}/{machine}",
                ]
            )
        except NetworkFailed as exc:
            if "File exists" in str(exc):  # then nothing was made
                raise FileExistsError(link.name) from exc
            with contextlib.suppress(NetworkFailed):
                tools.remove_link(link)
            raise
        return LinkSlot(link, machine)

    async def connect(self, name: str, namespace: int, egress: Egress) -> None:
        """Move the far end of a reserved link into the replica's network, and apply its egress policy.

        Args:
            namespace: Descriptor of the replica's network namespace; the caller closes it.

        Raises:
            NetworkFailed: It could not be done; `detach` removes what is left.
        """
        slot = self._slots.get(name)
        if slot is None:
            raise NetworkFailed(f"no link was reserved for {name}")
        slot.namespace = os.dup(namespace)
        await self._do(_set_up, slot)
        await self.allow(name, egress)

    async def detach(self, name: str) -> None:
        slot = self._slots.get(name)
        await super().detach(name)
        if slot is not None and slot.namespace >= 0:
            os.close(slot.namespace)
            slot.namespace = -1

    async def reap(self) -> int:
        """Remove links of the instance that belong to no replica; return their number."""
        kept = {slot.link.slot for slot in self._slots.values()}
        found = await self._do(tools.find_links, self._mark, LINK_PREFIX)
        lost = [entry.slot for entry in found if entry.slot not in kept]
        for number in lost:
            await self._remove(link_of(number, self._links))
        return len(lost)

    async def stop(self) -> None:
        """Remove every link, then the table. Idempotent.

        Raises:
            NetworkFailed: Something is left.
        """
        if self._pool is None:
            return
        for name in tuple(self._slots):
            await self.detach(name)
        await self.reap()
        await self._remove_table()
        await self.close()
        if self._record is not None:
            await asyncio.to_thread(self._record.unlink, missing_ok=True)


def _far_end(link: Link) -> str:
    """Return the name of the replica's end while it is still on the host."""
    return f"{link.name}p"


def _set_up(slot: LinkSlot) -> None:
    link = slot.link
    tools.bring_up_link(link)
    place = f"/proc/{os.getpid()}/fd/{slot.namespace}"
    tools.ip_batch([f"link set dev {_far_end(link)} netns {place} name {INSIDE}"])
    tools.inside(Path(place), lambda: _set_up_inside(link))


def _set_up_inside(link: Link) -> None:
    no_ipv6 = Path(f"/proc/sys/net/ipv6/conf/{INSIDE}/disable_ipv6")
    with contextlib.suppress(OSError):  # no IPv6 in this kernel; the host drops it in any case
        no_ipv6.write_text("1")
    tools.ip_batch(
        [
            f"address add {link.guest_ip}/31 dev {INSIDE}",
            f"link set dev {INSIDE} up",
            f"route add default via {link.host_ip}",
        ]
    )


def clear(mark: str, record: Path) -> int:
    """Remove links and rules that a killed host agent left, for an instance without egress. Blocking.

    Returns:
        Number of removed links.

    Raises:
        NetworkFailed: Something is left.
    """
    if not record.exists():
        return 0
    found = tools.find_links(mark, LINK_PREFIX)
    for entry in found:
        tools.ip_batch([f"link delete dev {LINK_PREFIX}{entry.slot}"])
    table = gate.table_name(mark)
    tools.nft(f"add table inet {table}\ndelete table inet {table}\n")
    record.unlink(missing_ok=True)
    return len(found)
