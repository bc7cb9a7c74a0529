"""Arguments, tags, host entries and the policy check that the components of all providers share."""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, NoReturn

import pulumi

from osgym_infra.config.keys import FleetConfig
from osgym_infra.fleet.blueprint import Blueprint, HostGroup, slug
from osgym_infra.fleet.boot import STATUS, BootPlace, FetchedArchives
from osgym_infra.fleet.bootstrap import bootstrap_files
from osgym_infra.fleet.outputs import HostOutput
from osgym_infra.fleet.policy import PolicyViolated, enforce
from osgym_infra.hosts import tls

HOST_IMAGE_TAG = "osgym-digest"
"""What host images made by images/packer carry, as a tag or label."""

FLEET_TAG = "osgym-fleet"
"""The tag or label of a fleet's hosts, with the stack's name: what clients look hosts up by."""

TARGET_PRESSURE_PERCENT = 80.0
"""Share of the fleet's capacity in use above which hosts are added; well below it hosts are removed."""
WARMUP_S = 600
"""From a machine's start to its desktops: before that its load says nothing."""
TOKEN_BYTES = 32
MOST_NAME_CHARS = 24
MESSAGE_WAS_SHOWN = 32
"""A program's exit code that tells Pulumi to add no message (`pulumi-language-python-exec`)."""


@dataclass(frozen=True, slots=True)
class HostsArgs:
    """Arguments of a `ReplicaHosts` component, the same for every provider.

    Attributes:
        made: Archives that the stack makes; None: those that the configuration names.
        made_bucket: A bucket of the stack that hosts have to be allowed to read.
        boot: Place of the bootstrap and of boot statuses, at clouds.
    """

    blueprint: Blueprint
    stack: str
    files: Mapping[str, bytes] = field(default_factory=bootstrap_files)
    made: pulumi.Output[FetchedArchives] | None = None
    made_bucket: pulumi.Output[str] | None = None
    boot: pulumi.Output[BootPlace] | None = None

    @property
    def tags(self) -> dict[str, str]:
        """On every resource that can have them: who pays, which stack, who made it, and the name by which
        clients discover hosts."""
        stack = slug(self.stack)[:63]
        return {"owner": self.blueprint.config.owner, "stack": stack, "project": "osgym", FLEET_TAG: stack}

    @property
    def server_name(self) -> str:
        """Name in the hosts' certificate, whatever their addresses are; no name server knows it."""
        return f"{slug(self.stack)}.osgym.internal"

    @property
    def fetched(self) -> pulumi.Output[FetchedArchives]:
        """Archives that hosts fetch."""
        return self.made or pulumi.Output.from_input(FetchedArchives.named_in(self.blueprint.config))

    @property
    def folder(self) -> str:
        """Folder of this stack in a bucket that other stacks may use too."""
        return f"osgym/{slug(self.stack)}"

    @property
    def status_folder(self) -> str:
        """Folder of the bucket in which each host may write its boot status."""
        return f"{self.folder}/{STATUS}"

    @property
    def status_bucket(self) -> pulumi.Input[str]:
        """Bucket of that folder."""
        return self.blueprint.config.bucket if self.made_bucket is None else self.made_bucket


def host_output(
    name: str,
    group: HostGroup,
    args: HostsArgs,
    zone: pulumi.Input[str],
    address: pulumi.Input[str],
    replicas: pulumi.Input[int] | None = None,
) -> pulumi.Output[dict[str, Any]]:
    """Return a host's entry of fleet.json; `replicas` is given for types that stand in."""
    config = args.blueprint.config
    # Only a secret that we made holds a certificate.
    scheme, server_name = ("http", "") if config.token_secret else ("https", args.server_name)

    def made(found: dict[str, Any]) -> dict[str, Any]:
        where = found["address"]
        address = f"[{where}]" if ":" in where else where
        return HostOutput(
            id=name,
            zone=found["zone"],
            url=f"{scheme}://{address}:{config.agent_port}",
            server_name=server_name,
            capacity=int(found["replicas"]),
            market=group.market.value,
            image_digest=found["fetched"].image_digest,
        ).to_dict()

    carried = group.replicas if replicas is None else replicas
    return pulumi.Output.all(zone=zone, address=address, replicas=carried, fetched=args.fetched).apply(made)


def fleet_name(stack: str) -> str:
    """Return the name of a stack's component, with which the names of all its resources begin.

    Some names are not the stack's own but the project's, so two stacks must not have the same; short enough
    for a Google Cloud service account (30 characters with what follows).
    """
    name = f"osgym-{slug(stack)}"
    if len(name) <= MOST_NAME_CHARS:
        return name
    return f"{name[: MOST_NAME_CHARS - 7]}-{hashlib.sha256(stack.encode()).hexdigest()[:6]}"


def new_secret(server_name: str) -> pulumi.Output[str]:
    """What hosts read at their first start, JSON, encrypted wherever it is kept: a fresh token, and a
    certificate with its key, of an authority whose own key is forgotten at once.

    All hosts of a stack share token and certificate, so that both are known before any host is, and hosts may
    come and go. A program runs many times; whoever takes this must ignore changes of it, so that the first
    one stays.
    """
    now = datetime.now(UTC)
    ca = tls.make_ca(server_name, now)
    host = tls.issue(ca, [server_name], now, tls.CA_LIFE)
    bundle = {
        "token": secrets.token_urlsafe(TOKEN_BYTES),
        "ca": ca.certificate,
        "certificate": host.certificate,
        "key": host.key,
    }
    return pulumi.Output.secret(json.dumps(bundle))


def authority_of(bundle: pulumi.Output[Any]) -> pulumi.Output[str]:
    """Return the public part of `new_secret`: the authority's certificate."""
    return pulumi.Output.unsecret(bundle.apply(lambda text: str(json.loads(text)["ca"])))


def check_every_resource() -> None:
    """Make each preview fail on a resource that breaks the policy; called once, before any resource."""

    def check(args: pulumi.ResourceTransformArgs) -> None:
        try:
            enforce(args.type_, args.name, known(dict(args.props)))
        except PolicyViolated as error:
            refuse(str(error))

    pulumi.runtime.register_resource_transform(check)


def refuse(sentence: str) -> NoReturn:
    """End the program with a message, before the resource is made.

    Raising would show the engine's traceback through three processes: what is raised in a transform comes
    back to the program as the failure of a call.
    """
    pulumi.log.error(f"policy: {sentence}")  # synchronous without a resource
    sys.stdout.flush()
    os._exit(MESSAGE_WAS_SHOWN)


def known(value: Any) -> Any:
    """Return a value whose unknown parts, outputs, are `None`."""
    match value:
        case pulumi.Output():
            return None
        case Mapping():
            return {name: known(item) for name, item in value.items()}
        case list() | tuple():
            return [known(item) for item in value]
    return value


@dataclass(frozen=True, slots=True)
class FleetScope:
    """Names and options of a fleet's resources.

    Attributes:
        child: Options of what is destroyed with the component.
        kept: Options of what `protect` keeps from being destroyed.
    """

    name: str
    args: HostsArgs
    child: pulumi.ResourceOptions
    kept: pulumi.ResourceOptions

    @property
    def config(self) -> FleetConfig:
        return self.args.blueprint.config
