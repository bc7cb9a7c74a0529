"""IP addresses that are not those of a machine on the public Internet. Pure.

The tables are the IANA special-purpose address registries for IPv4 and IPv6 (RFC 6890 and what was
registered since), written out: `ipaddress.is_global` changes with the version of Python and calls
deprecated and cloud-internal ranges public. IPv6 is the other way round: public is 2000::/3, which is all
that was ever allocated, less its special blocks.
"""

from __future__ import annotations

import ipaddress
from enum import Enum, auto
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network

Address = IPv4Address | IPv6Address

METADATA = frozenset(
    ipaddress.ip_address(text)
    for text in (
        "168.63.129.16",  # Azure's host services
        "100.100.100.200",  # Alibaba Cloud
        "192.0.0.192",  # Oracle Cloud
        "fd00:ec2::254",  # EC2
        "fd00:ec2::23",  # EKS's pod identities
        "fd20:ce::254",  # Google Cloud
    )
)
"""Metadata services of clouds outside the link-local ranges."""

_LINK_LOCAL = (IPv4Network("169.254.0.0/16"), IPv6Network("fe80::/10"))
_NO_MACHINE = (
    IPv4Network("0.0.0.0/8"),  # this network
    IPv4Network("224.0.0.0/4"),  # multicast
    IPv4Network("240.0.0.0/4"),  # reserved, broadcast
    IPv6Network("::/128"),
    IPv6Network("100::/64"),  # discard only
    IPv6Network("100:0:0:1::/64"),  # dummy prefix
    IPv6Network("ff00::/8"),  # multicast
)
_PRIVATE_V4 = tuple(
    IPv4Network(text)
    for text in (
        "10.0.0.0/8",
        "100.64.0.0/10",  # shared: carrier-grade NAT
        "127.0.0.0/8",
        "172.16.0.0/12",
        "192.0.0.0/24",  # IETF protocol assignments
        "192.0.2.0/24",  # documentation
        "192.31.196.0/24",  # AS112
        "192.52.193.0/24",  # AMT
        "192.88.99.0/24",  # 6to4 relays, deprecated
        "192.168.0.0/16",
        "192.175.48.0/24",  # AS112
        "198.18.0.0/15",  # benchmarking
        "198.51.100.0/24",  # documentation
        "203.0.113.0/24",  # documentation
    )
)
_PUBLIC_V6 = IPv6Network("2000::/3")
_PRIVATE_V6 = tuple(
    IPv6Network(text)
    for text in (
        "2001::/23",  # IETF protocol assignments: Teredo, benchmarking, ORCHID, ...
        "2001:db8::/32",  # documentation
        "2002::/16",  # 6to4
        "2620:4f:8000::/48",  # AS112
        "3ffe::/16",  # 6bone, given back
        "3fff::/20",  # documentation
    )
)
_LOW_32_BITS = 0xFFFF_FFFF
_EMBEDS_AT_THE_END = tuple(
    IPv6Network(text)
    for text in (
        "::/96",  # IPv4-compatible, deprecated
        "::ffff:0:0/96",  # IPv4-mapped
        "::ffff:0:0:0/96",  # IPv4-translated (SIIT)
        "64:ff9b::/96",  # NAT64
        "64:ff9b:1::/48",  # NAT64 of a local network
    )
)
_REACHES_THE_EMBEDDED = (IPv6Network("::ffff:0:0/96"), IPv6Network("64:ff9b::/96"))
"""Networks among these whose addresses lead to the embedded IPv4 address itself."""
_TEREDO, _SIX_TO_FOUR = IPv6Network("2001::/32"), IPv6Network("2002::/16")
_ISATAP_IDS = (0x0000_5EFE, 0x0200_5EFE)


class Kind(Enum):
    PUBLIC = auto()
    PRIVATE = auto()  # of a private network, of this machine, or of a registry's special block
    LINK_LOCAL = auto()  # or a cloud's metadata service
    NO_MACHINE = auto()  # multicast, unspecified, reserved


_SEVERITY = (Kind.PUBLIC, Kind.PRIVATE, Kind.NO_MACHINE, Kind.LINK_LOCAL)


def kind_of(address: str) -> Kind:
    """Return the kind of an address; one that embeds another has the worse of both kinds.

    Args:
        address: In numbers; the zone of a scoped IPv6 address does not matter.

    Raises:
        ValueError: The text is not an IP address.
    """
    return _kind(ipaddress.ip_address(address.split("%", 1)[0]))


def _kind(ip: Address) -> Kind:
    own = _kind_itself(ip)
    if isinstance(ip, IPv4Address):
        return own
    inner = [_kind_itself(address) for address in _embedded(ip)]
    if inner and any(ip in network for network in _REACHES_THE_EMBEDDED):
        return inner[0]
    return max((own, *inner), key=_SEVERITY.index)


def _kind_itself(ip: Address) -> Kind:
    if ip in METADATA or any(ip in network for network in _LINK_LOCAL):
        return Kind.LINK_LOCAL
    if any(ip in network for network in _NO_MACHINE):
        return Kind.NO_MACHINE
    if isinstance(ip, IPv4Address):
        private = any(ip in network for network in _PRIVATE_V4)
    else:
        private = ip not in _PUBLIC_V6 or any(ip in network for network in _PRIVATE_V6)
    return Kind.PRIVATE if private else Kind.PUBLIC


def _embedded(ip: IPv6Address) -> list[IPv4Address]:
    """Return the IPv4 addresses to which an IPv6 address may lead."""
    number = int(ip)
    low = number & _LOW_32_BITS
    found = []
    if number > 1 and (
        any(ip in network for network in _EMBEDS_AT_THE_END) or (number >> 32) & _LOW_32_BITS in _ISATAP_IDS
    ):
        found.append(low)
    if ip in _SIX_TO_FOUR:
        found.append((number >> 80) & _LOW_32_BITS)
    if ip in _TEREDO:
        found += [(number >> 64) & _LOW_32_BITS, low ^ _LOW_32_BITS]
    return [IPv4Address(value) for value in found]
