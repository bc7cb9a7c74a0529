"""From a checked configuration to the hosts that shall exist, and what they will cost. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from osgym_infra.args import Config, Provider
from osgym_infra.catalogue.rows import Catalogue, Source
from osgym_infra.errors import BadInput, CannotMeet
from osgym_infra.fleet import Candidate, Question, answer
from osgym_infra.model import Kvm, Rules, Runtime
from osgym_infra.price import Market, Terms
from osgym_infra.profile import Bound, Profile, with_values
from osgym_infra.readers import full_key

GCP_NEVER_NESTS = re.compile(r"(e2|f1|g1|m\d|t2d|t2a|n2d|n4d|c2d|c3d|c4d|c4a|n4a|a2|a3|g2|h3)-")
"""Families of Google Cloud on which nested virtualisation does not exist: E2 and the shared-core types
(E2 ignores the flag silently), the memory-optimised ones, AMD and Arm, accelerator-optimised types."""

ANSWER_FIELDS = {
    "budget_usd_per_day": "budget_usd_per_day",
    "replica_ram_gib": "replica_ram_gib",
    "step_cpu_s": "step_cpu_s",
    "p95_ms": "p95_ms",
    "type": "host_type",
    "region": "region",
    "market": "market",
    "replicas": "replicas",
    "runtime": "runtime",
    "provider": "provider",
    "shared_fraction": "shared",
}
"""The model's fields as configuration keys."""


@dataclass(frozen=True, slots=True)
class HostGroup:
    """Hosts of one kind.

    Attributes:
        name: part of resource names: small letters, digits, dashes.
        type: the provider's name of the type.
        count: how many.
        replicas: how many replicas each carries at most.
        nested: whether nested virtualisation has to be switched on.
        volume_gib: size of the network volume; what replicas write goes there unless the type has NVMe.
        nvme: whether the type has local disks.
    """

    name: str
    type: str
    count: int
    replicas: int
    market: Market
    nested: bool
    volume_gib: int
    nvme: bool
    usd_per_hour: float


@dataclass(frozen=True, slots=True)
class Blueprint:
    """What shall exist. Costs are expected values, `None` for machines that are paid for elsewhere."""

    config: Config
    groups: tuple[HostGroup, ...]
    usd_per_day: float | None
    usd_per_replica_day: float | None
    notes: tuple[str, ...] = ()
    sources: tuple[Source, ...] = ()

    @property
    def capacity(self) -> int:
        """Replicas that fit on all hosts together."""
        return sum(group.count * group.replicas for group in self.groups)


def draw(config: Config, catalogue: Catalogue, profile: Profile) -> Blueprint:
    """Plans a cloud fleet, or takes the machines of an ssh fleet as they are.

    Args:
        catalogue: priced in USD.

    Raises:
        BadInput: with the configuration key: region without prices, type without KVM, replica larger than any
            host.
        CannotMeet: budget or latency, with what would do.
    """
    if config.provider is Provider.SSH:
        return _own_machines(config)
    question = make_question(config, profile)
    refuse_silent_nesting(config)
    try:
        found = answer(question, catalogue, [profile.source()])
    except BadInput as error:
        raise BadInput(_key(error.field), error.problem, error.fits) from error
    except CannotMeet as error:
        raise CannotMeet(_key(error.field), error.problem, error.fits, error.details) from error
    best = found.best
    candidates = {one.name: one for one in found.candidates}
    groups = tuple(_group(candidates[name], count, config) for name, count in sorted(best.mix.hosts.items()))
    return Blueprint(
        config,
        groups,
        best.mix.usd_per_day,
        best.usd_per_replica_day,
        (*profile.mismatch(config.runtime), *found.notes),
        found.sources,
    )


def make_question(config: Config, profile: Profile) -> Question:
    """The cost model's question of a configuration."""
    replica = with_values(
        profile.replica(Bound.PESSIMISTIC),
        working_set_gib=config.replica_ram_gib,
        shared_fraction=config.shared,
        step_cpu_s=config.step_cpu_s,
        think_s=config.think_s,
    )
    return Question(
        replicas=config.replicas,
        replica=replica,
        runtime=config.runtime,
        rules=Rules(max_replicas=config.max_replicas_per_host),
        terms=Terms(),
        p95_s=None if config.p95_ms is None else config.p95_ms / 1000,
        budget_usd_per_day=config.budget_usd_per_day,
        providers=(config.provider.value,),
        regions=(config.region,),
        markets=(config.market,),
        types=(config.host_type,) if config.host_type else (),
        allow_unknown_kvm=config.allow_unknown_kvm,
    )


def refuse_silent_nesting(config: Config) -> None:
    """Google Cloud takes the flag on some types and then has no /dev/kvm.

    Raises:
        BadInput: the configured type is one of them and the runtime needs KVM.
    """
    if config.provider is Provider.GCP and config.runtime is Runtime.QEMU and config.host_type:
        if config.host_type.endswith("-metal") or not GCP_NEVER_NESTS.match(config.host_type):
            return
        raise BadInput(
            full_key("host_type"),
            f"{config.host_type} cannot run virtual machines inside, whatever it is told",
            "n2, n4, c3 or a -metal type, or runtime: local",
        )


def _group(one: Candidate, count: int, config: Config) -> HostGroup:
    nested = config.runtime is Runtime.QEMU and one.row.kvm is not Kvm.METAL
    return HostGroup(
        name=slug(one.row.type),
        type=one.row.type,
        count=count,
        replicas=one.fit.replicas,
        market=one.market,
        nested=nested,
        volume_gib=max(30, round(one.volume_gib + 0.5)),
        nvme=bool(one.row.nvme_gb),
        usd_per_hour=one.price.high,
    )


def _own_machines(config: Config) -> Blueprint:
    limit = config.max_replicas_per_host
    groups = tuple(
        HostGroup(
            name=slug(host.address), type="own", count=1, replicas=host.max_replicas or limit,
            market=Market.DEDICATED, nested=False, volume_gib=0, nvme=False, usd_per_hour=0.0,
        )
        for host in config.hosts
    )  # fmt: skip
    capacity = sum(group.replicas for group in groups)
    if capacity < config.replicas:
        raise BadInput(
            full_key("replicas"),
            f"{config.replicas} replicas do not fit on {len(groups)} hosts",
            f"at most {capacity} with max_replicas (per host) and max_replicas_per_host as they are",
        )
    return Blueprint(config, groups, None, None)


def slug(name: str) -> str:
    """A name as a part of resource names: small letters, digits and dashes."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")


def host_names(groups: Iterable[HostGroup]) -> list[tuple[str, HostGroup]]:
    """A name for each host: its group's, with a number."""
    return [(f"{group.name}-{number}", group) for group in groups for number in range(group.count)]


def _key(name: str) -> str:
    return full_key(ANSWER_FIELDS.get(name, name))
