"""Addresses of links between the host and the namespaces of machines. Pure."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass

LINK_PREFIX = "osgym"


@dataclass(frozen=True, slots=True)
class Link:
    """Link of one machine: two addresses, between the host and its namespace.

    Attributes:
        slot: Number of the link, unique on the host.
    """

    slot: int
    host_ip: str
    guest_ip: str

    @property
    def name(self) -> str:
        """Name of the host's end (at most 15 bytes)."""
        return f"{LINK_PREFIX}{self.slot}"


def link_of(slot: int, links: ipaddress.IPv4Network) -> Link:
    """Return the addresses of a slot.

    Raises:
        ValueError: The network has no room for that slot.
    """
    if not 0 <= slot < slots_in(links):
        raise ValueError(f"{links} has no room for link {slot}")
    first = links.network_address + 2 * slot
    return Link(slot, str(first), str(first + 1))


def slots_in(links: ipaddress.IPv4Network) -> int:
    return min(links.num_addresses // 2, 100_000)


def parse_links(text: str, used: Sequence[ipaddress.IPv4Network] = ()) -> ipaddress.IPv4Network:
    """Parse the network of links, which must not overlap networks of the host.

    Raises:
        ValueError: It is malformed, too small, or overlaps one of `used`.
    """
    network = ipaddress.IPv4Network(text)
    if network.prefixlen > 24:
        raise ValueError(f"{network} has room for only {slots_in(network)} replicas; set a /24 or larger")
    taken = next((other for other in used if other.overlaps(network)), None)
    if taken is not None:
        raise ValueError(f"{network} overlaps {taken}, which this host uses")
    return network
