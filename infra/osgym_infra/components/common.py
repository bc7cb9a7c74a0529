"""What the components of all providers share: arguments, tags, the hosts they put out, the policy check."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pulumi

from osgym_infra.blueprint import Blueprint, HostGroup
from osgym_infra.policy import enforce

BOOTSTRAP = Path(__file__).resolve().parents[2] / "bootstrap"
"""Where the bootstrap's files are in the repository, which programs are run from."""

TOKEN_BYTES = 32


def bootstrap_files(folder: Path = BOOTSTRAP) -> dict[str, bytes]:
    """The files that every host unpacks at its first start."""
    return {name: (folder / name).read_bytes() for name in ("bootstrap.sh", "fetch.py")}


@dataclass(frozen=True, slots=True)
class HostsArgs:
    """Arguments of a `ReplicaHosts` component, the same for every provider.

    Attributes:
        blueprint: which hosts, from the checked configuration.
        stack: the stack's name; part of names and tags.
        files: the bootstrap.
    """

    blueprint: Blueprint
    stack: str
    files: Mapping[str, bytes] = field(default_factory=bootstrap_files)

    @property
    def tags(self) -> dict[str, str]:
        """On every resource that can have them: who pays, which stack, who made it."""
        return {"owner": self.blueprint.config.owner, "stack": self.stack, "project": "osgym"}

    @property
    def buckets(self) -> tuple[str, ...]:
        """Buckets that hosts read from."""
        config = self.blueprint.config
        uris = [urlsplit(uri) for uri in (config.image_uri, config.agent_uri)]
        return tuple(sorted({uri.netloc for uri in uris if uri.scheme in ("s3", "gs")}))


def host_output(
    name: str, group: HostGroup, args: HostsArgs, zone: pulumi.Input[str], address: pulumi.Input[str]
) -> pulumi.Output[dict[str, Any]]:
    """One host as it stands in fleet.json."""
    config = args.blueprint.config
    return pulumi.Output.all(zone=zone, address=address).apply(
        lambda found: {
            "id": name,
            "zone": found["zone"],
            "url": f"http://{found['address']}:{config.agent_port}",
            "capacity": group.replicas,
            "market": group.market.value,
            "image_digest": config.image_digest,
        }
    )


def new_token() -> pulumi.Output[str]:
    """A fresh token, encrypted wherever it is kept.

    A program runs many times; whoever takes this must ignore changes of it, so that the first one stays.
    """
    return pulumi.Output.secret(secrets.token_urlsafe(TOKEN_BYTES))


def check_every_resource() -> None:
    """Makes each preview fail on a resource that breaks the policy. Call once, before any resource."""

    def check(args: pulumi.ResourceTransformArgs) -> None:
        enforce(args.type_, args.name, known(dict(args.props)))

    pulumi.runtime.register_resource_transform(check)


def known(value: Any) -> Any:
    """A value without what is not known yet: outputs become `None`."""
    match value:
        case pulumi.Output():
            return None
        case Mapping():
            return {name: known(item) for name, item in value.items()}
        case list() | tuple():
            return [known(item) for item in value]
    return value
