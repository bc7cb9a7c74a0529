"""Egress policy: ranges that are never reached, and the allowlist. Pure."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable
from dataclasses import dataclass

NEVER = (
    "0.0.0.0/8",
    "127.0.0.0/8",
    "169.254.0.0/16",  # link-local: metadata of EC2, GCE, Azure, OpenStack
    "168.63.129.16/32",  # Azure's host services
    "100.100.100.200/32",  # Alibaba Cloud's metadata
    "192.0.0.192/32",  # Oracle Cloud's metadata
    "224.0.0.0/3",  # multicast, reserved, broadcast
)
"""Never reached, whatever an allowlist says: the host's own, the cloud's metadata, no single machine.

IPv6 as a whole is never reached (fd00:ec2::254 is EC2's metadata there): guests have none.
"""

PRIVATE = (
    "10.0.0.0/8",
    "172.16.0.0/12",
    "192.168.0.0/16",
    "100.64.0.0/10",  # carrier-grade NAT (RFC 6598), used inside clouds and overlay networks
    "192.0.0.0/24",  # IETF protocol assignments (RFC 6890)
    "198.18.0.0/15",  # benchmarking (RFC 2544): our own links
)
"""Not reached with egress `open`, nor by a name; an allowlist may name networks in here as numbers."""

_NAME = re.compile(r"(?=.{1,253}\Z)([a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?\.)+[a-z][a-z0-9-]{0,62}\Z")

_FORBIDDEN = tuple(ipaddress.IPv4Network(network) for network in NEVER)
_PRIVATE = tuple(ipaddress.IPv4Network(network) for network in PRIVATE)


@dataclass(frozen=True, slots=True)
class Allowlist:
    """Destinations of the egress policy `allowlist`.

    Attributes:
        networks: IPv4 networks in canonical form, sorted.
        names: Host names; one that starts with `*.` stands for all below it, not for itself.
    """

    networks: tuple[str, ...] = ()
    names: frozenset[str] = frozenset()

    def has_name(self, name: str) -> bool:
        """Return whether a lower-case name without final dot is allowed."""
        if name in self.names:
            return True
        parts = name.split(".")
        return any("*." + ".".join(parts[start:]) in self.names for start in range(1, len(parts)))


def is_host_name(text: str) -> bool:
    """Return whether a lower-case text is a host name of several parts whose last begins with a letter.

    So no number in another form (decimal, octal, hexadecimal, shortened) is ever taken for a name.
    """
    return _NAME.match(text) is not None


def parse_allowlist(entries: Iterable[str]) -> Allowlist:
    """Parse the setting: IPv4 addresses, networks, host names, `*.names`.

    Raises:
        ValueError: An entry is of another form, or lies in a range that is never reached.
    """
    networks: set[ipaddress.IPv4Network] = set()
    names: set[str] = set()
    for raw in entries:
        entry = raw.strip().lower().removesuffix(".")
        if is_host_name(entry.removeprefix("*.")):
            names.add(entry)
            continue
        try:
            network = ipaddress.IPv4Network(entry)
        except ValueError as exc:
            raise ValueError(f"not an IPv4 network or a host name: {raw!r}") from exc
        bad = next((never for never in _FORBIDDEN if never.overlaps(network)), None)
        if bad is not None:
            raise ValueError(f"{raw!r} includes addresses of {bad}, which is never allowed")
        networks.add(network)
    ordered = sorted(ipaddress.collapse_addresses(networks))
    return Allowlist(tuple(str(network) for network in ordered), frozenset(names))


def public_addresses(found: Iterable[str]) -> list[str]:
    """Return the IPv4 addresses among `found` to which a name may resolve: nothing private.

    A name's owner may let it point anywhere, so a name never opens the way into a private network.
    """
    kept: list[str] = []
    for text in found:
        try:
            address = ipaddress.IPv4Address(text)
        except ValueError:
            continue
        inside = any(address in network for network in (*_FORBIDDEN, *_PRIVATE))
        if not inside and str(address) not in kept:
            kept.append(str(address))
    return kept
