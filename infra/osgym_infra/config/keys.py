"""The configuration of a fleet, typed and checked. Pure: no Pulumi, no files.

A stack's configuration (`Pulumi.<stack>.yaml`, keys `osgym:<name>`) is turned into a `FleetConfig` before any
resource exists, so a mistake fails in preview with the key's name and what would fit. Each field of it
brings how its key is read, and the sentence that documents it.
"""

# ruff: noqa: RUF009 (`_key` makes a field)

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from osgym_infra.catalogue.shapes import Market
from osgym_infra.config.providers import ConfigKey, Provider, installed, read_provider, usable
from osgym_infra.config.readers import (
    CountOrPercent,
    Reader,
    TrajectoryDetail,
    choice,
    cidrs,
    count_or_percent,
    flag,
    integer,
    matching,
    names,
    names_like,
    number,
    text,
)
from osgym_infra.config.ssh_hosts import DIRECT, SshHost, SshLogin, read_hosts, read_jump
from osgym_infra.cost.model import QEMU, RUNTIME_NAME, Rules

NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?")
DIGEST = re.compile(r"(sha256:)?[0-9a-f]{64}")
AGENT_PORT = 20000
AUTO = "auto"
"""A host image that is looked up: the newest of the account's own that images/packer made."""


class EgressPolicy(StrEnum):
    """Policy for replicas' connections to the internet; host and other replicas stay unreachable."""

    NONE = "none"
    ALLOWLIST = "allowlist"
    OPEN = "open"


ALL = frozenset(usable())
CLOUD = frozenset(provider for provider in ALL if provider.rents)
OWN_MACHINES = ALL - CLOUD
DEFAULT_REGIONS = ", ".join(f"{one.facts.default_region} ({one})" for one in sorted(CLOUD))


HEX = matching(DIGEST, "64 hexadecimal digits")
URI = matching(re.compile(r"(s3|gs|https|file)://\S+"), "s3://, gs://, https:// or file://")


def _key(read: Reader, default: Any, doc: str, providers: frozenset[Provider] = ALL) -> Any:
    """Return the dataclass field of a key; it has no default, since every field is given."""
    return field(metadata={"key": ConfigKey(read, default, doc, providers)})


@dataclass(frozen=True, slots=True)
class FleetConfig:
    """Checked configuration: a field for each shared key, and the provider's own keys in `own`."""

    provider: Provider = _key(read_provider, ..., f"{' | '.join(installed())}: provider of the hosts.")
    replicas: int = _key(integer(1, 100_000, "replicas"), ..., "Number of replicas at the same time.")
    owner: str = _key(
        matching(NAME, "small letters, digits and dashes, at most 40"),
        ...,
        "Payer, as a tag of every resource.",
    )
    region: str = _key(matching(NAME, "e.g. us-east-1"), "", f"Default: {DEFAULT_REGIONS}.", CLOUD)
    market: Market = _key(choice(Market), Market.ON_DEMAND, "on-demand | spot.", CLOUD)
    runtime: str = _key(
        matching(RUNTIME_NAME, "local | qemu | the name of an extension's"),
        QEMU,
        "local | qemu | an extension's: runtime of the replicas; virtual machines need KVM.",
    )
    profile: str = _key(
        text, "", "The measured workload: a name, or a file of osgym fleet fit; default: that of the runtime."
    )
    thread_efficiency: float = _key(
        number(0, 1, ""),
        Rules().thread_efficiency,
        "Part of a core that a vCPU is where two share one; 1 for a core each.",
        CLOUD,
    )
    budget_usd_per_day: float | None = _key(
        number(0, 1e7, "USD"), None, "Upper bound of the price; above it the preview fails.", CLOUD
    )
    replica_ram_gib: float | None = _key(
        number(0, 1e4, "GiB"), None, "Memory a replica touches, instead of the profile's."
    )
    shared: float | None = _key(number(0, 0.99, "", open_low=False), None, "Shared part of that memory.")
    step_cpu_s: float | None = _key(
        number(0, 1e4, "CPU-s"), None, "CPU time per step, instead of the profile's."
    )
    think_s: float | None = _key(
        number(0, 1e5, "s", open_low=False), None, "Time between an answer and the next step."
    )
    p95_ms: float | None = _key(
        number(0, 1e7, "ms"), None, "Milliseconds within which 95 % of steps get their CPU work done.", CLOUD
    )
    host_type: str = _key(
        matching(re.compile(r"[a-z0-9][a-z0-9.-]{1,60}"), "e.g. r8i.24xlarge"),
        "",
        "Only type of host; default: the cheapest mix.",
        CLOUD,
    )
    max_replicas_per_host: int = _key(
        integer(1, 10_000, "replicas"), Rules().max_replicas, "Replicas that may be lost with one host."
    )
    allow_unknown_kvm: bool = _key(flag, False, "Allow types on which nobody confirmed KVM.", CLOUD)
    image_name: str = _key(
        matching(NAME, "full, small, or an import's name"), "full", "Golden image that the agent serves."
    )
    image_uri: str = _key(
        URI, "", "Address of the archive of osgym fleet pack; default: pulumi up bakes, packs and uploads it."
    )
    image_sha256: str = _key(HEX, "", "With image_uri: SHA-256 of that archive, which hosts check.")
    image_digest: str = _key(HEX, "", "With image_uri: digest of the golden image in it.")
    image_lock: str = _key(text, "", "File of osgym image lock with the package versions to bake.")
    agent_uri: str = _key(
        URI, "", "Address of the host agent that osgym fleet pack packed; default: that of this tree."
    )
    agent_sha256: str = _key(HEX, "", "With agent_uri: SHA-256 of that archive, which hosts check.")
    archives: str = _key(
        text, "", "Folder for what is packed here; default: out/fleet/<stack> of the project."
    )
    bucket: str = _key(
        matching(re.compile(r"[a-z0-9][a-z0-9._-]{1,61}[a-z0-9]"), "a bucket's name"),
        "",
        "An existing bucket for archives and the hosts' status; default: a new private one.",
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
        choice(EgressPolicy), EgressPolicy.NONE, "none | allowlist | open: destinations of replicas."
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
    subnet_id: str = _key(
        text, "", "An existing subnet, with network_id; AWS: or several, separated by commas.", CLOUD
    )
    zone: str = _key(
        matching(NAME, "e.g. us-central1-a"),
        "",
        "Zone of all hosts; default: spread over all zones that have the type.",
        CLOUD,
    )
    zones: tuple[str, ...] = _key(
        names_like(NAME, "e.g. us-east-1a"), (), "Zones to spread hosts over, instead of zone.", CLOUD
    )
    private: bool = _key(
        flag,
        False,
        "Hosts without public addresses; they download over a new NAT, unless network_id is given.",
        CLOUD,
    )
    min_hosts: int | None = _key(
        integer(1, 10_000, "hosts"), None, "Fewest hosts of the group; default: as many as planned.", CLOUD
    )
    max_hosts: int | None = _key(
        integer(1, 10_000, "hosts"),
        None,
        "Most hosts of the group; default: as many as planned. Above min_hosts the cloud adds and removes "
        "hosts with the load.",
        CLOUD,
    )
    ttl_hours: float | None = _key(
        number(0, 8760, "hours"),
        None,
        "Hours after the last pulumi up when the cloud ends all hosts; default: never.",
        CLOUD,
    )
    alert_email: str = _key(
        matching(re.compile(r"[^@\s]+@[^@\s]+\.[^@\s]+"), "name@example.org"),
        "",
        "Receiver of the cloud's mails when half, most or all of a month's budget is used.",
        CLOUD,
    )
    data_disk_gib: int | None = _key(
        integer(30, 65_536, "GiB"),
        None,
        "Size of a host's data disk; default: what its replicas need.",
        CLOUD,
    )
    data_disk_iops: int | None = _key(
        integer(3000, 350_000, "IOPS"), None, "I/O operations per second; default: the cloud's.", CLOUD
    )
    data_disk_mib_per_s: int | None = _key(
        integer(125, 5000, "MiB/s"), None, "Throughput of the data disk; default: the cloud's.", CLOUD
    )
    warm: int | None = _key(
        integer(0, 4096, "replicas"), None, "Clean replicas kept ready on each host; default: the agent's, 2."
    )
    trajectory: TrajectoryDetail = _key(
        choice(TrajectoryDetail),
        TrajectoryDetail.STEPS,
        "off | steps | frames: parts of episodes that a host records on its disk.",
    )
    trajectory_mib: int | None = _key(
        # The agent's bound on one trajectory, 256 MiB, is at most half of it.
        integer(512, 100_000_000, "MiB"),
        None,
        "Bound on a host's recorded trajectories, the oldest go first; default: the agent's, 2048.",
    )
    token_secret: str = _key(
        text, "", "An existing secret that holds the agent's token; default: a new one.", CLOUD
    )
    protect: bool = _key(flag, False, "Refuse to destroy network and secret.")
    roll: bool = _key(flag, False, "Replace hosts whose template changed; else only new ones get it.", CLOUD)
    max_unavailable: CountOrPercent = _key(
        count_or_percent,
        CountOrPercent(1),
        "Number of hosts that may be away at a time during an update, or a part such as 25%.",
    )
    drain_timeout_s: float = _key(
        # 48 hours are what a lifecycle hook of EC2 Auto Scaling may keep an instance waiting (API reference,
        # PutLifecycleHook, `HeartbeatTimeout`); the host agent's own bound is wider (`MAX_DRAIN_S`).
        number(0, 172_800, "s", open_low=False),
        1800.0,
        "Seconds that episodes may go on on a host to be updated or removed; open ones then end as "
        "EpisodeLost.",
    )
    rotation: int = _key(
        integer(0, 1_000_000, ""),
        0,
        "Any new number replaces token and certificates on all hosts in place.",
        OWN_MACHINES,
    )
    hosts: tuple[SshHost, ...] = _key(
        read_hosts,
        ...,
        'Machines: ["local"], ["root@10.0.0.5"], or objects with address, port, user, '
        "host_key, ssh_key, jump, max_replicas.",
        OWN_MACHINES,
    )
    jump: SshLogin | None = _key(
        read_jump,
        None,
        'Machine through which hosts are reached: "user@bastion", or an object with address, port, user, '
        f"host_key, ssh_key. A host's own jump comes first; {DIRECT.address}: none.",
        OWN_MACHINES,
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


SHARED_KEYS = frozenset(one.name for one in dataclasses.fields(FleetConfig) if one.metadata)
"""Those that are fields, whatever the provider; the others are only their provider's."""
KEYS: dict[str, ConfigKey] = {
    **{one.name: one.metadata["key"] for one in dataclasses.fields(FleetConfig) if one.metadata},
    **{
        name: dataclasses.replace(
            key, providers=frozenset(one for one in usable() if name in one.facts.own_keys)
        )
        for provider in usable()
        for name, key in provider.facts.own_keys.items()
    },
}
"""All keys of a stack's configuration."""
