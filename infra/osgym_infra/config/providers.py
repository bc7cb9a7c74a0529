"""Providers of hosts: extensions (`osgym.providers`), each a package with these modules.

facts.py    `FACTS`: what configuration, planner and commands have to know of it
hosts.py    `ReplicaHosts`: what Pulumi makes of a plan
golden.py   optional, `GoldenImage`: where what hosts fetch is put; default: sent from this machine
access.py   optional, `access_of`: how its hosts are entered, where not by ssh
policy.py   optional, `RULES`: what none of its resources may be
prices.py   optional, `fetch`: its price API
preview.py  optional, `Answers`: what its Pulumi plugin answers in a preview without an account
catalogue.toml  optional: its host types and prices, beside the built-in ones
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import Any

from osgym_infra.config.readers import Reader, bad_key, short
from osgym_infra.errors import BadInput
from osgym_protocol.plugins import PluginError, PluginGroup, load_plugin, plugin_names


class Provider(str):
    """Name of an installed provider."""

    __slots__ = ()

    @property
    def facts(self) -> ProviderFacts:
        """Facts of the provider.

        Raises:
            BadInput: Its package cannot be imported.
        """
        return _facts(self)

    @property
    def rents(self) -> bool:
        """Whether the provider rents out its hosts."""
        return bool(self.facts.default_region)

    def part(self, name: str) -> ModuleType:
        """Import a module of its package; only such an import needs the SDK of its cloud."""
        return import_module(f"{_package(self).__name__}.{name}")

    def optional_part(self, name: str) -> ModuleType | None:
        """Import a module of its package; None where the package has none of that name."""
        return self.part(name) if find_spec(f"{_package(self).__name__}.{name}") else None


@dataclass(frozen=True, slots=True)
class ConfigKey:
    """One configuration key.

    Attributes:
        default: Its value where the configuration has none; `...` for required.
        providers: Providers for which it means something; the registry sets that of a provider's own keys.
    """

    read: Reader
    default: Any
    doc: str
    providers: frozenset[Provider] = frozenset()


@dataclass(frozen=True, slots=True)
class SettingBeside:
    """Setting of the cloud's own Pulumi provider that says the same as a key of ours.

    Attributes:
        variables: Variables of the environment that its provider reads where the configuration has none.
    """

    name: str
    key: str
    variables: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ProviderFacts:
    """Facts that configuration, planner and commands have to know of a provider.

    Attributes:
        default_region: Region without a configured one; empty where hosts are not rented.
        own_keys: Configuration keys that only this provider has; their values are in `FleetConfig.own`.
        has_prices: Whether `prices.py` asks a price API.
        notices: Extension of the host agent (`osgym.notices`) that hears of interruptions; empty: none.
        metrics_to: Extension of the host agent (`osgym.publishers`) to which hosts publish what a group is
            scaled by, with `{region}` where the region belongs; empty: none.
        needs_machines: Whether its requests differ by type, so that the catalogue has to know disks and
            network cards of every type that is planned with.
        forms: Second readers of keys that all providers have, for values of this one.
        zone_suffix: Part of a zone's name after the region's; None where there are no zones.
        ipv4_only: Whether its hosts get IPv4 addresses only.
        beside: Settings of the cloud's own provider that must not say otherwise.
    """

    default_region: str = ""
    own_keys: Mapping[str, ConfigKey] = field(default_factory=dict)
    has_prices: bool = False
    notices: str = ""
    metrics_to: str = ""
    needs_machines: bool = False
    forms: Mapping[str, Reader] = field(default_factory=dict)
    zone_suffix: re.Pattern[str] | None = None
    zone_example: str = ""
    ipv4_only: bool = False
    beside: tuple[SettingBeside, ...] = ()


def installed() -> tuple[Provider, ...]:
    """All installed providers, sorted by name; none is imported."""
    return tuple(Provider(name) for name in plugin_names(PluginGroup.PROVIDERS))


@functools.cache
def usable() -> tuple[Provider, ...]:
    """Installed providers whose facts can be read; a broken one is refused when it is asked for by name."""
    found = []
    for provider in installed():
        try:
            assert provider.facts
        except BadInput:
            continue
        found.append(provider)
    return tuple(found)


def read_provider(name: str, value: object) -> Provider:
    """Read the name of an installed provider.

    Raises:
        BadInput: No provider of that name is installed.
    """
    text = str(value).strip()
    if text not in installed():
        raise bad_key(name, f"{short(value)} does not fit", " | ".join(installed()))
    return Provider(text)


def _package(provider: Provider) -> ModuleType:
    try:
        found = load_plugin(PluginGroup.PROVIDERS, provider)
    except PluginError as error:
        raise bad_key("provider", str(error), " | ".join(installed())) from error
    assert isinstance(found, ModuleType)
    return found


@functools.cache
def _facts(provider: Provider) -> ProviderFacts:
    try:
        found = provider.part("facts").FACTS
    except ImportError as error:
        problem = f"the provider {provider} cannot be loaded: {error}"
        raise bad_key("provider", problem, "Choose another provider, or repair its package") from error
    assert isinstance(found, ProviderFacts)
    return found
