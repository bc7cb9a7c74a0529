"""What the programs of all stacks begin and end with: configuration to blueprint, component to outputs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pulumi
from pulumi.runtime import config as pulumi_config

from osgym_infra import profile as profiles
from osgym_infra.args import Provider, parse
from osgym_infra.blueprint import Blueprint, draw
from osgym_infra.catalogue.load import load
from osgym_infra.cli.common import age_lines, today
from osgym_infra.components.common import check_every_resource
from osgym_infra.errors import BadInput
from osgym_infra.outputs import fleet_outputs, summary
from osgym_infra.readers import NAMESPACE, full_key


def configured() -> dict[str, object]:
    """This stack's keys of our namespace, without it, as the engine gives them."""
    found: Mapping[str, Any] = {**pulumi_config.get_config_env(), **pulumi_config.CONFIG.get()}
    prefix = f"{NAMESPACE}:"
    return {name.removeprefix(prefix): value for name, value in found.items() if name.startswith(prefix)}


def begin(provider: Provider) -> Blueprint:
    """Checks the configuration, plans, says what it will cost, and has every resource checked from now on.

    Raises:
        BadInput: a key is wrong, or means another provider than the program's.
        CannotMeet: no plan meets budget or latency.
    """
    config = parse(configured())
    if config.provider is not provider:
        raise BadInput(full_key("provider"), f"this program is for {provider}", f"provider: {provider}")
    catalogue, _ = load().in_usd({})
    blueprint = draw(config, catalogue, profiles.load(config.profile))
    pulumi.log.info(summary(blueprint))
    _, old = age_lines(blueprint.sources, today())
    for note in (*blueprint.notes, *old):
        pulumi.log.warn(note)
    check_every_resource()
    return blueprint


def finish(
    blueprint: Blueprint, hosts: pulumi.Input[Any], token_secret: pulumi.Input[str], ca: pulumi.Input[str]
) -> dict[str, Any]:
    """Makes the stack's outputs fleet.json's; returns them."""
    outputs = fleet_outputs(blueprint, pulumi.get_stack(), hosts, token_secret, ca)
    for name, value in outputs.items():
        pulumi.export(name, value)
    return outputs
