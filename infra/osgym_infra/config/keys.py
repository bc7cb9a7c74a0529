"""The configuration of a fleet, typed and checked. Pure: no Pulumi, no files.

A stack's configuration (`Pulumi.<stack>.yaml`, keys `osgym:<name>`) is turned into a `FleetConfig` before any
resource exists, so a mistake fails in preview with the key's name and what would fit. Each field of it
brings how its key is read, and the sentence that documents it.
"""

# ruff: noqa: RUF009 (`_key` makes a field)

from __future__ import annotations

import dataclasses
import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from osgym_infra.config.providers import ConfigKey, Provider
from osgym_infra.config.readers import (
    ADDRESS,
    Reader,
    choice,
    cidrs,
    flag,
    full_key,
    integer,
    items,
    matching,
    names,
    number,
    short,
    text,
)
from osgym_infra.cost.model import Rules
from osgym_infra.cost.price import Market
from osgym_infra.errors import BadInput
from osgym_protocol.runtimes import RuntimeName

NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?")
DIGEST = re.compile(r"(sha256:)?[0-9a-f]{64}")
AGENT_PORT = 20000
AUTO = "auto"
"""A host image that is looked up: the newest of the account's own that images/packer made."""


class EgressPolicy(StrEnum):
    """What replicas may reach on the internet. Host, metadata and each other they never reach."""

    NONE = "none"
    ALLOWLIST = "allowlist"
    OPEN = "open"


@dataclass(frozen=True, slots=True)
class SshHost:
    """A machine that exists. `address` `local` is this machine, without ssh."""

    address: str
    port: int = 22
    user: str = "root"
    host_key: str = ""
    ssh_key: str = ""
    max_replicas: int | None = None

    @property
    def is_local(self) -> bool:
        """Whether it is this machine."""
        return self.address == "local"


CLOUD = frozenset(provider for provider in Provider if provider.rents)
DEFAULT_REGIONS = ", ".join(f"{one.facts.default_region} ({one})" for one in Provider if one.rents)


def read_hosts(name: str, value: object) -> tuple[SshHost, ...]:
    found = []
    for index, item in enumerate(items(name, value)):
        where = f"{name}[{index}]"
        data = {"address": item} if isinstance(item, str) else item
        if not isinstance(data, dict):
            raise BadInput(
                full_key(where), f"{short(item)} is not a host", '"user@address", or an object with address'
            )
        data = dict(data)
        if isinstance(data.get("address"), str) and "@" in data["address"] and "user" not in data:
            data["user"], _, data["address"] = data["address"].partition("@")
        known = {f.name: HOST_KEYS[f.name] for f in dataclasses.fields(SshHost)}
        for key in data:
            if key not in known:
                raise BadInput(full_key(where), f"there is no key {key!r}", f"Known are {', '.join(known)}")
        if "address" not in data:
            raise BadInput(full_key(where), "has no address", "a name or an IP address, or local")
        found.append(SshHost(**{key: known[key](f"{where}.{key}", data[key]) for key in data}))
    if not found:
        raise BadInput(full_key(name), "is empty", '["local"] is this machine')
    return tuple(found)


HOST_KEYS: dict[str, Reader] = {
    "address": matching(ADDRESS, "a name or an IP address, or local"),
    "port": integer(1, 65535, "as TCP port"),
    "user": matching(re.compile(r"[a-z_][a-z0-9_-]{0,31}"), "a user's name"),
    "host_key": matching(re.compile(r"(ssh-ed25519|ecdsa-sha2-nistp\d+|ssh-rsa) [A-Za-z0-9+/=]+"),
                          "a line like ssh-ed25519 AAAA…"),
    "ssh_key": text,
    "max_replicas": integer(1, 10_000, "replicas"),
}  # fmt: skip

HEX = matching(DIGEST, "64 hexadecimal digits")
URI = matching(re.compile(r"(s3|gs|https|file)://\S+"), "s3://, gs://, https:// or file://")


def _key(read: Reader, default: Any, doc: str, providers: frozenset[Provider] = frozenset(Provider)) -> Any:
    """Return the field of a key; every field is given, so it has no default of its own."""
    return field(metadata={"key": ConfigKey(read, default, doc, providers)})


@dataclass(frozen=True, slots=True)
class FleetConfig:
    """A checked configuration: a field for each key, and in `own` those that only its provider has."""

    provider: Provider = _key(choice(Provider), ..., f"{' | '.join(Provider)}: where the hosts come from.")
    replicas: int = _key(integer(1, 100_000, "replicas"), ..., "How many replicas run at the same time.")
    owner: str = _key(
        matching(NAME, "small letters, digits and dashes, at most 40"),
        ...,
        "Who pays: every resource is tagged with it.",
    )
    region: str = _key(matching(NAME, "e.g. us-east-1"), "", f"Default: {DEFAULT_REGIONS}.", CLOUD)
    market: Market = _key(choice(Market), Market.ON_DEMAND, "on-demand | spot.", CLOUD)
    runtime: RuntimeName = _key(
        choice(RuntimeName),
        RuntimeName.QEMU,
        f"{' | '.join(RuntimeName)}: how replicas run; virtual machines need KVM.",
    )
    profile: str = _key(text, "desktop-local", "The measured workload: a name, or a file of osgym calibrate.")
    budget_usd_per_day: float | None = _key(
        number(0, 1e7, "USD"), None, "Preview fails when it costs more.", CLOUD
    )
    replica_ram_gib: float | None = _key(
        number(0, 1e4, "GiB"), None, "Memory a replica touches, instead of the profile's."
    )
    shared: float | None = _key(number(0, 0.99, "", open_low=False), None, "Part of it shared copy-on-write.")
    step_cpu_s: float | None = _key(
        number(0, 1e4, "CPU-s"), None, "CPU time per step, instead of the profile's."
    )
    think_s: float | None = _key(
        number(0, 1e5, "s", open_low=False), None, "Time between an answer and the next step."
    )
    p95_ms: float | None = _key(
        number(0, 1e7, "ms"), None, "95 % of steps get their CPU work done within so long.", CLOUD
    )
    host_type: str = _key(
        matching(re.compile(r"[a-z0-9][a-z0-9.-]{1,60}"), "e.g. r8i.24xlarge"),
        "",
        "This type only; default: the cheapest mix.",
        CLOUD,
    )
    max_replicas_per_host: int = _key(
        integer(1, 10_000, "replicas"), Rules().max_replicas, "So many are lost at most with one host."
    )
    allow_unknown_kvm: bool = _key(flag, False, "Take types on which nobody confirmed KVM.", CLOUD)
    image_name: str = _key(
        matching(NAME, "full, small, or an import's name"), "full", "Which golden image the agent serves."
    )
    image_uri: str = _key(
        URI,
        "",
        "Where hosts fetch it, packed by osgym fleet pack; default: it is baked, packed and put there.",
    )
    image_sha256: str = _key(HEX, "", "With image_uri: SHA-256 of that archive; hosts check it.")
    image_digest: str = _key(HEX, "", "With image_uri: digest of the golden image in it.")
    image_lock: str = _key(text, "", "Exact package versions to bake: a file of osgym image lock.")
    agent_uri: str = _key(
        URI, "", "Where hosts fetch the host agent, packed by osgym fleet pack; default: that of this tree."
    )
    agent_sha256: str = _key(HEX, "", "With agent_uri: SHA-256 of that archive; hosts check it.")
    archives: str = _key(
        text, "", "Folder for what is packed here; default: out/fleet/<stack> of the project."
    )
    bucket: str = _key(
        matching(re.compile(r"[a-z0-9][a-z0-9._-]{1,61}[a-z0-9]"), "a bucket's name"),
        "",
        "An existing bucket for what is packed here; default: a new one, private.",
        CLOUD,
    )
    agent_port: int = _key(integer(1024, 65535, "as TCP port"), AGENT_PORT, "The host agent's port.")
    allowed_cidrs: tuple[str, ...] = _key(
        cidrs,
        (),
        "Networks that may reach the agents' port; never the whole internet. Needed wherever a host is not "
        "local, whose agent listens on loopback only.",
    )
    egress: EgressPolicy = _key(
        choice(EgressPolicy), EgressPolicy.NONE, "none | allowlist | open: what replicas may reach."
    )
    egress_allowlist: tuple[str, ...] = _key(names, (), "Host names for egress: allowlist.")
    host_image: str = _key(
        text,
        "",
        "A baked host image (AMI id or image name); auto: the newest of yours made by images/packer, if any; "
        "default: plain Debian 12.",
        CLOUD,
    )
    network_id: str = _key(text, "", "An existing VPC or network, with subnet_id.", CLOUD)
    subnet_id: str = _key(text, "", "An existing subnet, with network_id.", CLOUD)
    zone: str = _key(
        matching(NAME, "e.g. us-central1-a"), "", "Zone of the hosts; default: the region's first.", CLOUD
    )
    token_secret: str = _key(
        text, "", "An existing secret that holds the agent's token; default: a new one.", CLOUD
    )
    protect: bool = _key(flag, False, "Refuse to destroy network and secret.")
    roll: bool = _key(flag, False, "Replace hosts whose template changed; else only new ones get it.", CLOUD)
    rotation: int = _key(
        integer(0, 1_000_000, ""),
        0,
        "Another number: a new token and new certificates, on all hosts in place.",
        frozenset({Provider.SSH}),
    )
    hosts: tuple[SshHost, ...] = _key(
        read_hosts,
        ...,
        'Machines: ["local"], ["root@10.0.0.5"], or objects with address, port, user, '
        "host_key, ssh_key, max_replicas.",
        frozenset({Provider.SSH}),
    )
    own: Mapping[str, Any] = field(default_factory=dict)

    @property
    def makes_image(self) -> bool:
        """Whether the golden image is baked and packed by `pulumi up`."""
        return not self.image_uri

    @property
    def makes_agent(self) -> bool:
        """Whether the host agent is packed by `pulumi up`."""
        return not self.agent_uri


KEYS: dict[str, ConfigKey] = {
    **{one.name: one.metadata["key"] for one in dataclasses.fields(FleetConfig) if one.metadata},
    **{name: key for provider in Provider for name, key in provider.facts.own_keys.items()},
}
"""All keys of a stack's configuration."""


def parse(values: Mapping[str, object]) -> FleetConfig:
    """Check a stack's configuration.

    Args:
        values: by key, without the namespace; as Pulumi gives them (texts, lists and objects as JSON), or as
            Python values.

    Raises:
        BadInput: `field` is `osgym:<key>`: unknown, missing, of another type, out of range, or not for this
            provider; `fits` says what would do.
    """
    for name in values:
        if name not in KEYS:
            close = difflib.get_close_matches(name, KEYS, 1)
            known = f"Did you mean {close[0]}?" if close else f"Known are {', '.join(KEYS)}"
            raise BadInput(full_key(name), "there is no such key", known)
    if "provider" not in values:
        raise BadInput(full_key("provider"), "is missing", KEYS["provider"].doc)
    provider = Provider(KEYS["provider"].read("provider", values["provider"]))
    found: dict[str, Any] = {}
    for name, key in KEYS.items():
        if name in values and provider not in key.providers:
            raise BadInput(
                full_key(name),
                f"means nothing for provider {provider}",
                f"for {', '.join(sorted(key.providers))}",
            )
        if name in values:
            found[name] = key.read(name, values[name])
        elif key.default is ... and provider in key.providers:
            raise BadInput(full_key(name), "is missing", key.doc)
        elif provider in key.providers or key.default is not ...:
            found[name] = key.default
    own = {name: found.pop(name) for name in provider.facts.own_keys}
    return _checked(FleetConfig(**{"hosts": (), **found}, own=own))


def _checked(config: FleetConfig) -> FleetConfig:
    """What two keys say together."""
    if config.egress is EgressPolicy.ALLOWLIST and not config.egress_allowlist:
        raise BadInput(
            full_key("egress_allowlist"), "is empty", "the hosts that replicas may reach, or egress: none"
        )
    if config.egress_allowlist and config.egress is not EgressPolicy.ALLOWLIST:
        raise BadInput(
            full_key("egress_allowlist"), f"means nothing with egress {config.egress}", "egress: allowlist"
        )
    if bool(config.network_id) != bool(config.subnet_id):
        missing = "subnet_id" if config.network_id else "network_id"
        raise BadInput(
            full_key(missing), "is missing", "both, for an existing network, or neither, for a new one"
        )
    apart = config.provider.rents or any(not host.is_local for host in config.hosts)
    if apart and not config.allowed_cidrs:
        raise BadInput(full_key("allowed_cidrs"), "is missing", "the networks your trainers run in")
    if config.allowed_cidrs and not apart:
        raise BadInput(
            full_key("allowed_cidrs"), "means nothing where local is the only host", "leave it out"
        )
    if config.market is Market.DEDICATED and config.provider.rents:
        raise BadInput(
            full_key("market"), "dedicated hosts are rented elsewhere", "spot | on-demand, or provider: ssh"
        )
    _check_archives(config)
    if not config.region:
        config = dataclasses.replace(config, region=config.provider.facts.default_region)
    # Whatever the port of ssh: two agents cannot serve at one address.
    addresses = [host.address for host in config.hosts]
    for address in addresses:
        if addresses.count(address) > 1:
            raise BadInput(full_key("hosts"), f"{address} stands there twice", "each host once")
    return config


def _check_archives(config: FleetConfig) -> None:
    """What hosts fetch is either named whole, or made here."""
    for name in ("image_sha256", "image_digest", "agent_sha256"):
        uri = f"{name.partition('_')[0]}_uri"
        named = bool(getattr(config, uri))
        if named and not getattr(config, name):
            raise BadInput(
                full_key(name), f"is missing beside {uri}", f"both, or neither: without {uri} it is made here"
            )
        if not named and getattr(config, name):
            raise BadInput(
                full_key(name),
                f"means nothing without {uri}",
                f"both, or neither: without {uri} it is made here",
            )
    if config.image_lock and not config.makes_image:
        raise BadInput(full_key("image_lock"), "means nothing with image_uri", "one of both")
    for name in ("archives", "bucket"):
        if getattr(config, name) and not config.makes_image and not config.makes_agent:
            raise BadInput(
                full_key(name),
                "means nothing with image_uri and agent_uri",
                "without one of these, or not at all",
            )
