"""The registry of providers. All that is a provider's own is in `osgym_infra.providers.<name>`.

A new provider is one line here and one package there:

    facts.py   `FACTS`: what configuration, planner and commands have to know of it
    hosts.py   `ReplicaHosts`: what Pulumi makes of a plan
    golden.py  `GoldenImage`: where what hosts fetch is put
    policy.py  optional, `RULES`: what none of its resources may be
    prices.py  optional, `fetch`: its price API
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from importlib import import_module
from types import ModuleType
from typing import Any

from osgym_infra.config.readers import Reader


class Provider(StrEnum):
    """Where hosts come from; `ssh` are machines that exist already, `local` among them."""

    AWS = "aws"
    GCP = "gcp"
    SSH = "ssh"

    @property
    def facts(self) -> ProviderFacts:
        """What is to be known of it."""
        return _facts(self)

    @property
    def rents(self) -> bool:
        """Whether its hosts are rented."""
        return bool(self.facts.default_region)

    def part(self, name: str) -> ModuleType:
        """Import a module of its package; what needs the provider's SDK is imported only now."""
        return import_module(f"osgym_infra.providers.{self}.{name}")


@dataclass(frozen=True, slots=True)
class ConfigKey:
    """One configuration key: how its value is read, its default (`...` for required), who may use it."""

    read: Reader
    default: Any
    doc: str
    providers: frozenset[Provider] = frozenset(Provider)


@dataclass(frozen=True, slots=True)
class SettingBeside:
    """A setting of the cloud's own Pulumi provider that says the same as a key of ours.

    Attributes:
        name: as it stands in a stack's configuration: `aws:region`.
        key: ours.
        variables: of the environment, that its provider reads where the configuration has none.
    """

    name: str
    key: str
    variables: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ProviderFacts:
    """What configuration, planner and commands have to know of a provider.

    Attributes:
        default_region: empty where hosts are not rented.
        own_keys: configuration keys that only this provider has; their values are in `FleetConfig.own`.
        has_prices: whether `prices.py` asks a price API.
        notices: whether its hosts are told of interruptions (`osgym_host.notices`).
        metrics_to: where its hosts publish what a group is scaled by (`osgym_host.scaling`), with `{region}`
            where the region belongs; empty: nowhere.
        gib_per_vcpu: what a vCPU costs in GiB of RAM.
        needs_machines: whether its requests differ by type, so that the catalogue has to know disks and
            network cards of every type that is planned with.
        forms: how values of keys that all providers have look at this one: these are read after the key's own
            reader.
        zone_suffix: what stands in a zone's name after the region's; None where there are no zones.
        zone_example: one of them.
        ipv4_only: whether its hosts get IPv4 addresses only.
        beside: settings of the cloud's own provider that must not say otherwise.
    """

    default_region: str = ""
    own_keys: Mapping[str, ConfigKey] = field(default_factory=dict)
    has_prices: bool = False
    notices: bool = False
    metrics_to: str = ""
    gib_per_vcpu: float = 10.0
    needs_machines: bool = False
    forms: Mapping[str, Reader] = field(default_factory=dict)
    zone_suffix: re.Pattern[str] | None = None
    zone_example: str = ""
    ipv4_only: bool = False
    beside: tuple[SettingBeside, ...] = ()


@functools.cache
def _facts(provider: Provider) -> ProviderFacts:
    found = provider.part("facts").FACTS
    assert isinstance(found, ProviderFacts)
    return found
