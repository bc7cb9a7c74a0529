"""Checking of a stack's values: each key alone, then keys that depend on each other. Pure.

A single value can be right by itself and wrong beside another one: a zone of another region, a region that
the cloud's own provider does not work in, networks that together are the whole internet.
"""

from __future__ import annotations

import dataclasses
import difflib
import ipaddress
from collections.abc import Iterable, Mapping
from typing import Any

from osgym_infra.catalogue.shapes import Market
from osgym_infra.config.keys import KEYS, SHARED_KEYS, EgressPolicy, FleetConfig
from osgym_infra.config.providers import ConfigKey, Provider, read_provider
from osgym_infra.config.readers import bad_key, full_key, short
from osgym_infra.errors import BadInput

NOT_PUBLIC = tuple(
    ipaddress.ip_network(one)
    # RFC 1918, RFC 6598 (carriers and VPNs), RFC 4193, link-local.
    for one in ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10", "fc00::/7",
                "169.254.0.0/16", "fe80::/10")
)  # fmt: skip
"""Networks whose addresses no packet from the internet carries. Not `ipaddress`' `is_private`, which also
counts the networks that documentation uses."""
INTERNET = {4: ipaddress.ip_network("0.0.0.0/0"), 6: ipaddress.ip_network("2000::/3")}
"""By IP version, what public addresses are from. All of version 6 that is handed out is in 2000::/3 (IANA,
"Internet Protocol Version 6 Address Space", read 2026-11-22)."""

TRAINERS = "the networks your trainers run in"


def parse(values: Mapping[str, object], beside: Mapping[str, object] | None = None) -> FleetConfig:
    """Check a stack's configuration.

    Args:
        values: Values by key, without the namespace: texts, lists and objects as JSON, or Python values.
        beside: Settings of the cloud's own provider (`aws:region`), by key or by variable.

    Raises:
        BadInput: `field` is `osgym:<key>`: unknown, missing, of another type, out of range, or not for this
            provider; `fits` says what would do. Or one of `beside`.
    """
    for name in values:
        if name not in KEYS:
            close = difflib.get_close_matches(name, KEYS, 1)
            known = f"Did you mean {close[0]}?" if close else f"Valid keys are {', '.join(KEYS)}"
            raise bad_key(name, "is not a valid key", known)
    if "provider" not in values:
        raise bad_key("provider", "is missing", KEYS["provider"].doc)
    provider = read_provider("provider", values["provider"])
    found: dict[str, Any] = {}
    for name, key in {**KEYS, **_own_keys(provider)}.items():
        if name in values and provider not in key.providers:
            raise bad_key(
                name,
                f"has no effect for provider {provider}",
                f"It applies to {', '.join(sorted(key.providers))}",
            )
        if name in values:
            found[name] = key.read(name, values[name])
            if form := provider.facts.forms.get(name):
                found[name] = form(name, found[name])
        elif key.default is ... and provider in key.providers:
            raise bad_key(name, "is missing", key.doc)
        elif provider in key.providers or (name in SHARED_KEYS and key.default is not ...):
            found[name] = key.default
    own = {name: found.pop(name) for name in provider.facts.own_keys}
    config = _checked(FleetConfig(**{"hosts": (), **found}, own=own))
    check_places(config, beside or {})
    return config


def _own_keys(provider: Provider) -> dict[str, ConfigKey]:
    """Return the provider's own keys; another provider may use the same names for something else."""
    only = frozenset({provider})
    return {name: dataclasses.replace(key, providers=only) for name, key in provider.facts.own_keys.items()}


def _checked(config: FleetConfig) -> FleetConfig:
    """Check keys that depend on each other."""
    if config.egress is EgressPolicy.ALLOWLIST and not config.egress_allowlist:
        raise bad_key(
            "egress_allowlist", "is empty", "Name the hosts that replicas may reach, or set egress: none"
        )
    if config.egress_allowlist and config.egress is not EgressPolicy.ALLOWLIST:
        raise bad_key("egress_allowlist", f"has no effect with egress {config.egress}", "egress: allowlist")
    if bool(config.network_id) != bool(config.subnet_id):
        missing = "subnet_id" if config.network_id else "network_id"
        raise bad_key(missing, "is missing", "Set both for an existing network, or neither for a new one")
    apart = config.provider.rents or any(not host.is_local for host in config.hosts)
    if apart and not config.allowed_cidrs:
        raise bad_key("allowed_cidrs", "is missing", "the networks your trainers run in")
    if config.allowed_cidrs and not apart:
        raise bad_key("allowed_cidrs", "has no effect where local is the only host", "Leave it out")
    if config.market is Market.DEDICATED and config.provider.rents:
        raise bad_key(
            "market",
            "this provider does not rent out dedicated hosts",
            "Use spot or on-demand, or provider: ssh",
        )
    if config.provider.rents:
        check_cloud(config)
    _check_archives(config)
    if not config.region:
        config = dataclasses.replace(config, region=config.provider.facts.default_region)
    # Whatever the port of ssh: two agents cannot serve at one address.
    addresses = [host.address for host in config.hosts]
    for address in addresses:
        if addresses.count(address) > 1:
            raise bad_key("hosts", f"{address} occurs twice", "Name each host once")
    return config


def _check_archives(config: FleetConfig) -> None:
    """Check that each archive is either named with its digests or made by the stack."""
    for name in ("image_sha256", "image_digest", "agent_sha256"):
        uri = f"{name.partition('_')[0]}_uri"
        named = bool(getattr(config, uri))
        if named and not getattr(config, name):
            raise bad_key(
                name,
                f"is required with {uri}",
                f"Set both or neither; without {uri} the archive is made here",
            )
        if not named and getattr(config, name):
            raise bad_key(
                name,
                f"has no effect without {uri}",
                f"Set both or neither; without {uri} the archive is made here",
            )
    if config.image_lock and not config.makes_image:
        raise bad_key("image_lock", "has no effect with image_uri", "Set one of both")
    if config.archives and not config.makes_image and not config.makes_agent:
        raise bad_key(
            "archives", "has no effect with image_uri and agent_uri", "Leave it or one of the others out"
        )


def check_cloud(config: FleetConfig) -> None:
    """Check the keys of rented hosts against each other.

    Raises:
        BadInput: Names the key and what would do.
    """
    if config.zone and config.zones:
        raise bad_key("zones", "cannot be combined with zone", "Set one of both")
    if len(set(config.zones)) != len(config.zones):
        raise bad_key("zones", "names a zone twice", "Name each zone once")
    least, most = config.min_hosts, config.max_hosts
    if least is not None and most is not None and least > most:
        raise bad_key("min_hosts", f"{least} is more than max_hosts ({most})", f"It must be at most {most}")
    _check_reach(config)


def _check_reach(config: FleetConfig) -> None:
    """Refuse private networks alone for public hosts: clients behind NAT arrive with public addresses."""
    if config.private or not config.allowed_cidrs:
        return
    if all(_not_public(cidr) for cidr in config.allowed_cidrs):
        raise bad_key(
            "allowed_cidrs",
            "clients reach the hosts at public addresses, so no client has an address in "
            f"{config.allowed_cidrs[0]}",
            "Name the public addresses of your trainers, or set private: true and network_id for hosts "
            "inside your network",
        )


def _not_public(cidr: str) -> bool:
    network = ipaddress.ip_network(cidr)
    return any(
        network.version == one.version and network.overlaps(one) and network.prefixlen >= one.prefixlen
        for one in NOT_PUBLIC
    )


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
            f"has only IPv6 networks, but hosts of {provider} get IPv4 addresses",
            "Add IPv4 networks",
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
