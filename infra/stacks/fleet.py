"""Program of a fleet, the same for every provider: configuration to blueprint to component to outputs."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import pulumi
from pulumi.runtime import config as pulumi_config

from osgym_infra.catalogue.ages import age_lines, today
from osgym_infra.catalogue.load import load
from osgym_infra.components.common import HostsArgs, check_every_resource, fleet_name
from osgym_infra.components.golden import place_golden_image
from osgym_infra.config.keys import FleetConfig
from osgym_infra.config.parse import parse
from osgym_infra.config.providers import Provider
from osgym_infra.config.readers import NAMESPACE, bad_key
from osgym_infra.fleet.blueprint import Blueprint, draw
from osgym_infra.fleet.outputs import REMOVES, destroy_removes, fleet_outputs, summary
from osgym_infra.links.local import becomes_root
from osgym_infra.links.sudo import COMMAND
from osgym_infra.workloads import profile as profiles


def configured() -> dict[str, object]:
    """Return this stack's keys of our namespace, without it, as the engine gives them."""
    found: Mapping[str, Any] = {**pulumi_config.get_config_env(), **pulumi_config.CONFIG.get()}
    prefix = f"{NAMESPACE}:"
    return {name.removeprefix(prefix): value for name, value in found.items() if name.startswith(prefix)}


def said_beside(provider: Provider) -> dict[str, object]:
    """Return settings of the cloud's own provider: keys of this stack's configuration, and variables."""
    found: Mapping[str, Any] = {**os.environ, **pulumi_config.get_config_env(), **pulumi_config.CONFIG.get()}
    names = [name for own in provider.facts.beside for name in (own.name, *own.variables)]
    return {name: found[name] for name in names if name in found}


def needs_root(config: FleetConfig) -> str:
    """Return the parts of a fleet that are made as root on this machine; empty: none."""
    parts = ["the host local"] if any(host.is_local for host in config.hosts) else []
    return " and ".join([*parts, *(["baking the image"] if config.makes_image else [])])


def begin(provider: Provider) -> Blueprint:
    """Check the configuration, plan, say what it will cost, and have every resource checked from now on.

    Raises:
        BadInput: A key is wrong, or means another provider than the program's.
        CannotMeet: No plan meets budget or latency.
    """
    config = parse(configured(), said_beside(provider))
    if config.provider != provider:
        raise bad_key("provider", f"this program is for {provider}", f"provider: {provider}")
    catalogue, _ = load().in_usd({})
    blueprint = draw(config, catalogue, profiles.chosen(config.profile, config.runtime))
    pulumi.log.info(summary(blueprint))
    _, old = age_lines(blueprint.sources, today())
    for note in (*blueprint.notes, *old):
        pulumi.log.warn(note)
    _say_what_is_needed(config)
    check_every_resource()
    return blueprint


def _say_what_is_needed(config: FleetConfig) -> None:
    """Warn in a preview that the update will need root here, where it is refused without."""
    if not pulumi.runtime.is_dry_run() or becomes_root():
        return
    if what := needs_root(config):
        pulumi.log.warn(f"{what} needs root on this machine, and sudo asks for a password: {COMMAND} first")


def run(provider: Provider) -> dict[str, Any]:
    """Make the fleet of this stack's configuration; return the stack's outputs, those of fleet.json.

    Raises:
        BadInput: A key is wrong, or means another provider.
        CannotMeet: No plan meets budget or latency.
    """
    blueprint, stack = begin(provider), pulumi.get_stack()
    name = fleet_name(stack) if provider.rents else "fleet"
    args = place_golden_image(name, HostsArgs(blueprint, stack))
    fleet = provider.part("hosts").ReplicaHosts(name, args)
    if removed := destroy_removes(blueprint):
        pulumi.export(REMOVES, removed)
    outputs = fleet_outputs(blueprint, stack, fleet.hosts, fleet.token_source, fleet.ca, fleet.discover)
    if not provider.rents:
        outputs["capacity"] = fleet.hosts.apply(lambda hosts: sum(int(host["capacity"]) for host in hosts))
    for key, value in outputs.items():
        pulumi.export(key, value)
    return outputs
