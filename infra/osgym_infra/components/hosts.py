"""Common part of every provider's `ReplicaHosts`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar
from urllib.parse import urlencode

import pulumi

from osgym_infra.components.common import FLEET_TAG, HostsArgs
from osgym_infra.fleet.blueprint import HostGroup
from osgym_infra.fleet.boot import BootPlace, FetchedArchives, environment, scaling, user_data


class ProviderHosts(pulumi.ComponentResource):
    """Hosts that serve replicas; a provider's `ReplicaHosts` makes them.

    Attributes:
        provider: Part of the component's type.
        hosts: One object for each host, as in fleet.json.
        token_source: Where hosts and clients read the agent's token: `aws:ARN`, `gcp:NAME`, `file:PATH`;
            never the token.
        ca: Certificate of the authority that signed the hosts' certificates; empty with a secret of the
            configuration's, for then hosts speak HTTP.
        discover: Where clients look up which hosts there are now, as `Client.from_fleet` takes it; empty
            where hosts are the same until the next `pulumi up`.
    """

    provider: ClassVar[str]
    hosts: pulumi.Output[list[dict[str, Any]]]
    token_source: pulumi.Output[str]
    ca: pulumi.Output[str]
    discover: str = ""

    def __init__(self, name: str, args: HostsArgs) -> None:
        super().__init__(f"osgym:{self.provider}:ReplicaHosts", name)
        self._name, self._args, self._config = name, args, args.blueprint.config
        self._child = pulumi.ResourceOptions(parent=self)
        self._kept = pulumi.ResourceOptions(parent=self, protect=self._config.protect)
        # What is put out is known once all of them are made.
        self.hosts = pulumi.Output.all(*self._make()).apply(_flat)
        self.register_outputs({"hosts": self.hosts, "token_source": self.token_source, "ca": self.ca})

    def _make(self) -> Iterable[pulumi.Output[Any]]:
        """Make everything, set `token_source` and `ca`, and return the hosts as they stand in fleet.json: one
        by one, or a list of those that a group has now."""
        raise NotImplementedError

    def _where_to_look(self, scheme: str, **known: str) -> str:
        """Return the URL by which clients discover hosts; it has all that they need beside the secret."""
        known["address"] = "private" if self._config.private else "public"
        if self._config.token_secret:
            known["scheme"] = "http"
        else:
            known["server_name"] = self._args.server_name
        return f"{scheme}://{FLEET_TAG}={self._args.tags[FLEET_TAG]}?{urlencode(known)}"

    def _script(self, group: HostGroup, more: Mapping[str, str] | None = None) -> pulumi.Output[str]:
        """Return the start script of a group's hosts; `more` are settings of the provider."""

        def made(source: str, fetched: FetchedArchives, boot: BootPlace) -> str:
            settings = environment(self._config, group, source, fetched)
            settings |= scaling(self._config, self._args.blueprint.groups, self._args.tags[FLEET_TAG])
            return user_data(self._args.files, {**settings, **boot.settings(), **(more or {})})

        assert self._args.boot is not None, "hosts of a cloud fetch the bootstrap"
        parts = pulumi.Output.all(self.token_source, self._args.fetched, self._args.boot)
        return parts.apply(lambda found: made(*found))


def _flat(found: Iterable[Any]) -> list[dict[str, Any]]:
    return [host for one in found for host in (one if isinstance(one, list) else [one])]
