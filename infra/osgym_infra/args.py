"""The configuration of a fleet, typed and checked. Pure: no Pulumi, no files.

A stack's configuration (`Pulumi.<stack>.yaml`, keys `osgym:<name>`) is turned into a `Config` before any
resource exists, so a mistake fails in preview with the key's name and what would fit. `KEYS` is the list of
all keys, with the sentence that documents each.
"""

from __future__ import annotations

import dataclasses
import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from osgym_infra.errors import BadInput
from osgym_infra.model import Rules, Runtime
from osgym_infra.price import Market
from osgym_infra.readers import (
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

NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?")
DIGEST = re.compile(r"(sha256:)?[0-9a-f]{64}")
AGENT_PORT = 20000
AUTO = "auto"
"""A host image that is looked up: the newest of the account's own that images/packer made."""


class Provider(StrEnum):
    """Where hosts come from; `ssh` are machines that exist already, `local` among them."""

    AWS = "aws"
    GCP = "gcp"
    SSH = "ssh"


class Egress(StrEnum):
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


@dataclass(frozen=True, slots=True)
class Config:
    """A checked configuration. Units and meanings: `KEYS`."""

    provider: Provider
    replicas: int
    owner: str
    region: str
    market: Market
    runtime: Runtime
    profile: str
    budget_usd_per_day: float | None
    replica_ram_gib: float | None
    shared: float | None
    step_cpu_s: float | None
    think_s: float | None
    p95_ms: float | None
    host_type: str
    max_replicas_per_host: int
    allow_unknown_kvm: bool
    image_name: str
    image_digest: str
    image_uri: str
    image_sha256: str
    image_lock: str
    agent_uri: str
    agent_sha256: str
    archives: str
    bucket: str
    agent_port: int
    allowed_cidrs: tuple[str, ...]
    egress: Egress
    egress_allowlist: tuple[str, ...]
    host_image: str
    network_id: str
    subnet_id: str
    zone: str
    project: str
    token_secret: str
    protect: bool
    roll: bool
    rotation: int
    hosts: tuple[SshHost, ...]

    @property
    def makes_image(self) -> bool:
        """Whether the golden image is baked and packed by `pulumi up`."""
        return not self.image_uri

    @property
    def makes_agent(self) -> bool:
        """Whether the host agent is packed by `pulumi up`."""
        return not self.agent_uri


@dataclass(frozen=True, slots=True)
class Key:
    """One configuration key: how its value is read, its default (`...` for required), who may use it."""

    read: Reader
    default: Any
    doc: str
    providers: frozenset[Provider] = frozenset(Provider)


EMPTY: dict[str, Any] = {"hosts": (), "project": ""}
"""What a required key is for a provider that does not have it."""

CLOUD = frozenset({Provider.AWS, Provider.GCP})


def parse(values: Mapping[str, object]) -> Config:
    """Checks a stack's configuration.

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
        else:
            found[name] = EMPTY[name] if key.default is ... else key.default
    config = Config(**found)
    return _checked(config)


def _checked(config: Config) -> Config:
    """What two keys say together."""
    if config.egress is Egress.ALLOWLIST and not config.egress_allowlist:
        raise BadInput(
            full_key("egress_allowlist"), "is empty", "the hosts that replicas may reach, or egress: none"
        )
    if config.egress_allowlist and config.egress is not Egress.ALLOWLIST:
        raise BadInput(
            full_key("egress_allowlist"), f"means nothing with egress {config.egress}", "egress: allowlist"
        )
    if bool(config.network_id) != bool(config.subnet_id):
        missing = "subnet_id" if config.network_id else "network_id"
        raise BadInput(
            full_key(missing), "is missing", "both, for an existing network, or neither, for a new one"
        )
    apart = config.provider in CLOUD or any(not host.is_local for host in config.hosts)
    if apart and not config.allowed_cidrs:
        raise BadInput(full_key("allowed_cidrs"), "is missing", "the networks your trainers run in")
    if config.allowed_cidrs and not apart:
        raise BadInput(
            full_key("allowed_cidrs"), "means nothing where local is the only host", "leave it out"
        )
    if config.market is Market.DEDICATED and config.provider is not Provider.SSH:
        raise BadInput(
            full_key("market"), "dedicated hosts are rented elsewhere", "spot | on-demand, or provider: ssh"
        )
    _check_archives(config)
    if config.provider in CLOUD and not config.region:
        default = {Provider.AWS: "us-east-1", Provider.GCP: "us-central1"}[config.provider]
        config = dataclasses.replace(config, region=default)
    # Whatever the port of ssh: two agents cannot serve at one address.
    addresses = [host.address for host in config.hosts]
    for address in addresses:
        if addresses.count(address) > 1:
            raise BadInput(full_key("hosts"), f"{address} stands there twice", "each host once")
    return config


def _check_archives(config: Config) -> None:
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


def read_hosts(name: str, value: object) -> tuple[SshHost, ...]:
    found = []
    for index, item in enumerate(items(name, value)):
        where = f"{name}[{index}]"
        data = {"address": item} if isinstance(item, str) else item
        if not isinstance(data, dict):
            raise BadInput(
                full_key(where), f"{short(item)} is no host", '"user@address", or an object with address'
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

KEYS: dict[str, Key] = {
    "provider": Key(choice(Provider), ..., "aws | gcp | ssh: where the hosts come from."),
    "replicas": Key(integer(1, 100_000, "replicas"), ..., "How many replicas run at the same time."),
    "owner": Key(
        matching(NAME, "small letters, digits and dashes, at most 40"),
        ...,
        "Who pays: every resource is tagged with it.",
    ),
    "region": Key(
        matching(NAME, "e.g. us-east-1"), "", "Default: us-east-1 (aws), us-central1 (gcp).", CLOUD
    ),
    "market": Key(choice(Market), Market.ON_DEMAND, "on-demand | spot.", CLOUD),
    "runtime": Key(choice(Runtime), Runtime.QEMU, "local (namespaces) | qemu (virtual machines, needs KVM)."),
    "profile": Key(text, "desktop-local", "The measured workload: a name, or a file of osgym calibrate."),
    "budget_usd_per_day": Key(number(0, 1e7, "USD"), None, "Preview fails when it costs more.", CLOUD),
    "replica_ram_gib": Key(
        number(0, 1e4, "GiB"), None, "Memory a replica touches, instead of the profile's."
    ),
    "shared": Key(number(0, 0.99, "", open_low=False), None, "Part of it shared copy-on-write."),
    "step_cpu_s": Key(number(0, 1e4, "CPU-s"), None, "CPU time per step, instead of the profile's."),
    "think_s": Key(number(0, 1e5, "s", open_low=False), None, "Time between an answer and the next step."),
    "p95_ms": Key(number(0, 1e7, "ms"), None, "95 % of steps get their CPU work done within so long.", CLOUD),
    "host_type": Key(
        matching(re.compile(r"[a-z0-9][a-z0-9.-]{1,60}"), "e.g. r8i.24xlarge"),
        "",
        "This type only; default: the cheapest mix.",
        CLOUD,
    ),
    "max_replicas_per_host": Key(
        integer(1, 10_000, "replicas"), Rules().max_replicas, "So many are lost at most with one host."
    ),
    "allow_unknown_kvm": Key(flag, False, "Take types on which nobody confirmed KVM.", CLOUD),
    "image_name": Key(
        matching(NAME, "full, small, or an import's name"), "full", "Which golden image the agent serves."
    ),
    "image_uri": Key(
        URI,
        "",
        "Where hosts fetch it, packed by osgym fleet pack; default: it is baked, packed and put there.",
    ),
    "image_sha256": Key(HEX, "", "With image_uri: SHA-256 of that archive; hosts check it."),
    "image_digest": Key(HEX, "", "With image_uri: digest of the golden image in it."),
    "image_lock": Key(text, "", "Exact package versions to bake: a file of osgym image lock."),
    "agent_uri": Key(
        URI, "", "Where hosts fetch the host agent, packed by osgym fleet pack; default: that of this tree."
    ),
    "agent_sha256": Key(HEX, "", "With agent_uri: SHA-256 of that archive; hosts check it."),
    "archives": Key(text, "", "Folder for what is packed here; default: out/fleet/<stack> of the project."),
    "bucket": Key(
        matching(re.compile(r"[a-z0-9][a-z0-9._-]{1,61}[a-z0-9]"), "a bucket's name"),
        "",
        "An existing bucket for what is packed here; default: a new one, private.",
        CLOUD,
    ),
    "agent_port": Key(integer(1024, 65535, "as TCP port"), AGENT_PORT, "The host agent's port."),
    "allowed_cidrs": Key(
        cidrs,
        (),
        "Networks that may reach the agents' port; never the whole internet. Needed wherever a host is not "
        "local, whose agent listens on loopback only.",
    ),
    "egress": Key(choice(Egress), Egress.NONE, "none | allowlist | open: what replicas may reach."),
    "egress_allowlist": Key(names, (), "Host names for egress: allowlist."),
    "host_image": Key(
        text,
        "",
        "A baked host image (AMI id or image name); auto: the newest of yours made by images/packer, if any; "
        "default: plain Debian 12.",
        CLOUD,
    ),
    "network_id": Key(text, "", "An existing VPC or network, with subnet_id.", CLOUD),
    "subnet_id": Key(text, "", "An existing subnet, with network_id.", CLOUD),
    "zone": Key(
        matching(NAME, "e.g. us-central1-a"), "", "Zone of the hosts; default: the region's first.", CLOUD
    ),
    "project": Key(
        matching(re.compile(r"[a-z][a-z0-9-]{4,28}[a-z0-9]"), "a project id"),
        ...,
        "Google Cloud project.",
        frozenset({Provider.GCP}),
    ),
    "token_secret": Key(
        text, "", "An existing secret that holds the agent's token; default: a new one.", CLOUD
    ),
    "protect": Key(flag, False, "Refuse to destroy network and secret."),
    "roll": Key(flag, False, "Replace hosts whose template changed; else only new ones get it.", CLOUD),
    "rotation": Key(
        integer(0, 1_000_000, ""),
        0,
        "Another number: a new token and new certificates, on all hosts in place.",
        frozenset({Provider.SSH}),
    ),
    "hosts": Key(
        read_hosts,
        ...,
        'Machines: ["local"], ["root@10.0.0.5"], or objects with address, port, user, '
        "host_key, ssh_key, max_replicas.",
        frozenset({Provider.SSH}),
    ),
}
"""All keys of a stack's configuration. `Config` has a field for each."""
