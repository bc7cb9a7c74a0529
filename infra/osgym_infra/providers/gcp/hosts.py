"""Hosts at Google Cloud: network, service account, secret, templates, and groups that keep hosts alive."""

from __future__ import annotations

from typing import Any

import pulumi
import pulumi_gcp as gcp

from osgym_infra.components.common import host_output
from osgym_infra.components.hosts import ProviderHosts
from osgym_infra.config.keys import AGENT_PORT
from osgym_infra.fleet.bounds import HostGroup
from osgym_infra.providers.gcp.ending import make_alarm, make_end
from osgym_infra.providers.gcp.group import found_hosts, make_check, make_group
from osgym_infra.providers.gcp.iam import make_identity
from osgym_infra.providers.gcp.network import PROBE_CIDRS, make_firewall, make_network
from osgym_infra.providers.gcp.scope import Scope, zones_of
from osgym_infra.providers.gcp.template import make_template


class ReplicaHosts(ProviderHosts):
    """Hosts at Google Cloud."""

    provider = "gcp"

    def _make(self) -> list[pulumi.Output[list[dict[str, Any]]]]:
        scope = self._scope = Scope(self._name, self._args, self._child, self._kept)
        groups = self._args.blueprint.groups
        zones = {group.name: zones_of(scope, group) for group in groups}
        make_alarm(scope)
        place = make_network(scope)
        make_firewall(scope, place.network)
        access = make_identity(scope)
        self.ca = access.authority
        self.token_source = pulumi.Output.concat("gcp:", access.secret)
        port = {} if self._config.agent_port == AGENT_PORT else {"port": str(self._config.agent_port)}
        self.discover = self._where_to_look("gcp-label", project=scope.project, **port)
        check = make_check(scope)
        needs = [*place.needs, *access.needs]
        made = {}
        for group in groups:
            template = make_template(scope, group, place, access.email, self._script(group, self._probed()))
            made[group.name] = make_group(scope, group, template, zones[group.name], check, needs)
        make_end(scope, [(made[group.name], group.grows) for group in groups])
        return [self._found(group, made[group.name]) for group in groups]

    def _probed(self) -> dict[str, str]:
        """Return the networks that the host's own firewall admits, health checks included."""
        return {"OSGYM_ALLOWED_CIDRS": " ".join((*self._config.allowed_cidrs, *PROBE_CIDRS))}

    def _found(
        self, group: HostGroup, made: gcp.compute.RegionInstanceGroupManager
    ) -> pulumi.Output[list[dict[str, Any]]]:
        """Return entries of fleet.json for the hosts that the group has now."""
        # All of a group start from its template, and so carry as many at most, whatever type they are.
        return found_hosts(self._scope, made).apply(
            lambda hosts: pulumi.Output.all(
                *[host_output(name, group, self._args, zone, address) for name, zone, address in hosts]
            )
        )
