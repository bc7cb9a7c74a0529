"""The part of `ReplicaHosts` that is the same for every provider."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar

import pulumi

from osgym_infra.components.common import HostsArgs
from osgym_infra.fleet.blueprint import HostGroup
from osgym_infra.fleet.boot import environment, user_data


class ProviderHosts(pulumi.ComponentResource):
    """Hosts that serve replicas; a provider's `ReplicaHosts` makes them.

    Attributes:
        provider: part of the component's type.
        hosts: one object for each host, as in fleet.json.
        token_source: where hosts and clients read the agent's token: `aws:ARN`, `gcp:NAME`, `file:PATH`;
            never the token.
        ca: certificate of the authority that signed the hosts' certificates; empty with a secret of the
            configuration's, for then hosts speak HTTP.
    """

    provider: ClassVar[str]
    hosts: pulumi.Output[list[dict[str, Any]]]
    token_source: pulumi.Output[str]
    ca: pulumi.Output[str]

    def __init__(self, name: str, args: HostsArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__(f"osgym:{self.provider}:ReplicaHosts", name, None, opts)
        self._name, self._args, self._config = name, args, args.blueprint.config
        self._child = pulumi.ResourceOptions(parent=self)
        self._kept = pulumi.ResourceOptions(parent=self, protect=self._config.protect)
        # What is put out is known once all of them are made.
        self.hosts = pulumi.Output.all(*self._make()).apply(list)
        self.register_outputs({"hosts": self.hosts, "token_source": self.token_source, "ca": self.ca})

    def _make(self) -> Iterable[pulumi.Output[dict[str, Any]]]:
        """Make everything, set `token_source` and `ca`, and return the hosts as they stand in fleet.json."""
        raise NotImplementedError

    def _script(self, group: HostGroup) -> pulumi.Output[str]:
        """Return what a host of a group runs at its first start."""
        return pulumi.Output.all(self.token_source, self._args.fetched).apply(
            lambda found: user_data(self._args.files, environment(self._config, group, *found))
        )
