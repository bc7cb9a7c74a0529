"""What keys of rented hosts say together: zones, bounds of the group, who can reach a host at all. Pure."""

from __future__ import annotations

import ipaddress
from typing import TYPE_CHECKING

from osgym_infra.config.readers import full_key
from osgym_infra.errors import BadInput

if TYPE_CHECKING:
    from osgym_infra.config.keys import FleetConfig

NOT_PUBLIC = tuple(
    ipaddress.ip_network(one)
    # RFC 1918, RFC 6598 (carriers and VPNs), RFC 4193, link-local.
    for one in ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10", "fc00::/7",
                "169.254.0.0/16", "fe80::/10")
)  # fmt: skip
"""Networks whose addresses no packet from the internet carries. Not `ipaddress`' `is_private`, which also
counts the networks that documentation uses."""


def check_cloud(config: FleetConfig) -> None:
    """Check what the keys of rented hosts say together.

    Raises:
        BadInput: names the key and what would do.
    """
    if config.zone and config.zones:
        raise BadInput(full_key("zones"), "stands beside zone", "one of both")
    if len(set(config.zones)) != len(config.zones):
        raise BadInput(full_key("zones"), "names a zone twice", "each zone once")
    least, most = config.min_hosts, config.max_hosts
    if least is not None and most is not None and least > most:
        raise BadInput(full_key("min_hosts"), f"{least} is more than max_hosts ({most})", f"at most {most}")
    _check_reach(config)


def _check_reach(config: FleetConfig) -> None:
    """Hosts with public addresses are named by these: what is behind others never arrives as itself."""
    if config.private or not config.allowed_cidrs:
        return
    if all(_not_public(cidr) for cidr in config.allowed_cidrs):
        raise BadInput(
            full_key("allowed_cidrs"),
            f"hosts are reached at public addresses, where nobody comes from {config.allowed_cidrs[0]}",
            "the public addresses your trainers appear with, or private: true with network_id for hosts "
            "inside your network",
        )


def _not_public(cidr: str) -> bool:
    network = ipaddress.ip_network(cidr)
    return any(
        network.version == one.version and network.overlaps(one) and network.prefixlen >= one.prefixlen
        for one in NOT_PUBLIC
    )
