"""Checks of regions, zones and networks of a configuration against each other. Pure.

A single value can be right by itself and wrong beside another one: a zone of another region, a region that
the cloud's own provider does not work in, networks that together are the whole internet.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from osgym_infra.config.providers import Provider
from osgym_infra.config.readers import bad_key, full_key, short
from osgym_infra.errors import BadInput

if TYPE_CHECKING:
    from osgym_infra.config.keys import FleetConfig

INTERNET = {4: ipaddress.ip_network("0.0.0.0/0"), 6: ipaddress.ip_network("2000::/3")}
"""By IP version, what public addresses are from. All of version 6 that is handed out is in 2000::/3 (IANA,
"Internet Protocol Version 6 Address Space", read 2026-11-22)."""

TRAINERS = "the networks your trainers run in"


def check_places(config: FleetConfig, beside: Mapping[str, object]) -> None:
    """Check all regions, zones and networks of a configuration.

    Args:
        beside: Keys of other namespaces in the same configuration, and variables of the environment.

    Raises:
        BadInput: At the key, or the one of `beside`, that does not fit.
    """
    for key, zones in (("zone", (config.zone,)), ("zones", config.zones)):
        for zone in zones:
            check_zone(config.provider, config.region, key, zone)
    check_networks(config.provider, config.allowed_cidrs)
    own = {name: str(value) for name, value in config.own.items()}
    check_beside(config.provider, {"region": config.region, "zone": config.zone, **own}, beside)


def check_zone(provider: Provider, region: str, name: str, zone: str) -> None:
    """Refuse a zone that is not one of the region.

    Args:
        zone: Empty: the provider's choice, which is right.

    Raises:
        BadInput: At that key.
    """
    suffix = provider.facts.zone_suffix
    if not zone or suffix is None:
        return
    if not zone.startswith(region) or not suffix.fullmatch(zone.removeprefix(region)):
        raise bad_key(
            name,
            f"{short(zone)} is not a zone of region {region}",
            f"e.g. {region}{provider.facts.zone_example}",
        )


def check_networks(provider: Provider, networks: Iterable[str]) -> None:
    """Refuse networks from which nobody reaches the provider's hosts, or that let everybody in.

    Raises:
        BadInput: At `osgym:allowed_cidrs`.
    """
    by_version: dict[int, list[ipaddress.IPv4Network | ipaddress.IPv6Network]] = {}
    for text in networks:
        network = ipaddress.ip_network(text)
        by_version.setdefault(network.version, []).append(network)
    if by_version and 4 not in by_version and provider.facts.ipv4_only:
        raise bad_key(
            "allowed_cidrs",
            f"holds IPv6 networks only, and hosts of {provider} get IPv4 addresses",
            "those of IPv4, too",
        )
    for version, found in by_version.items():
        if _part_of_internet(version, found) >= 0.5:
            raise bad_key(
                "allowed_cidrs",
                f"{', '.join(map(str, found[:4]))}{', …' if len(found) > 4 else ''}: "
                f"{'together ' if len(found) > 1 else ''}half of the internet or more (IPv{version})",
                TRAINERS,
            )


def _part_of_internet(
    version: int, networks: Iterable[ipaddress.IPv4Network | ipaddress.IPv6Network]
) -> float:
    """Return the part of an IP version's public address space that the networks cover, 0 to 1."""
    whole = INTERNET[version]
    covered = 0
    # The networks are all of this version, which their types do not say.
    for network in ipaddress.collapse_addresses(networks):  # type: ignore[type-var]
        if whole.subnet_of(network):  # type: ignore[arg-type]
            return 1.0
        covered += network.num_addresses if network.subnet_of(whole) else 0  # type: ignore[arg-type]
    return covered / whole.num_addresses


def check_beside(provider: Provider, wanted: Mapping[str, str], beside: Mapping[str, object]) -> None:
    """Refuse settings of a cloud's own provider that contradict ours.

    Its resources would be made where it was told; prices, zones and endpoints would be of another place.

    Args:
        beside: Keys of other namespaces in the same configuration (`aws:region`), and variables that the
            cloud's provider reads where they are missing.

    Raises:
        BadInput: With that key or variable as the field.
    """
    for own in provider.facts.beside:
        names = [name for name in (own.name, *own.variables) if str(beside.get(name) or "").strip()]
        if not names:
            continue
        found = str(beside[names[0]]).strip()
        if found != wanted.get(own.key, ""):
            said = wanted.get(own.key, "") or "not given"
            remedy = f"pulumi config set {own.name} {wanted[own.key]}" if wanted.get(own.key) else ""
            raise BadInput(
                names[0],
                f"is {found}, and {full_key(own.key)} is {said}",
                " or ".join(filter(None, [remedy, f"pulumi config set {full_key(own.key)} {found}"])),
            )
