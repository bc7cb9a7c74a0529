"""Hosts at AWS: network, role, secret, launch templates, and groups that keep the hosts alive."""

from __future__ import annotations

from typing import Any

import pulumi
import pulumi_aws as aws

from osgym_infra.components.common import FLEET_TAG, host_output
from osgym_infra.components.hosts import ProviderHosts
from osgym_infra.fleet.blueprint import BUDGET_ALARMS
from osgym_infra.fleet.boot import ec2_user_data
from osgym_infra.fleet.bounds import HostGroup
from osgym_infra.providers.aws.group import DRAIN_HOOK, make_group
from osgym_infra.providers.aws.iam import make_profile, make_secret
from osgym_infra.providers.aws.network import check_subnets, make_firewall, make_network, zones_of
from osgym_infra.providers.aws.scope import Scope
from osgym_infra.providers.aws.template import check_nesting, host_image, make_template


class ReplicaHosts(ProviderHosts):
    """Hosts at AWS."""

    provider = "aws"

    def _make(self) -> list[pulumi.Output[list[dict[str, Any]]]]:
        scope = self._scope = Scope(self._name, self._args, self._child, self._kept)
        groups = self._args.blueprint.groups
        port = str(self._config.agent_port)
        self.discover = self._where_to_look("aws-tag", region=self._config.region, port=port)
        zones = zones_of(scope)
        check_subnets(scope, groups, zones)
        check_nesting(scope)
        network = make_network(scope, {zone for of in zones.values() for zone in of})
        firewall = make_firewall(scope, network.vpc)
        secret = make_secret(scope)
        self.ca = secret.authority
        self.token_source = pulumi.Output.concat("aws:", secret.arn)
        profile, rights = make_profile(scope, secret.arn)
        image = host_image(scope)
        made = []
        for group in groups:
            templates = {
                kind.type: make_template(
                    scope,
                    kind,
                    name=group.name if kind is group else f"{group.name}-or-{kind.name}",
                    firewall=firewall,
                    profile=profile,
                    image=image,
                    user_data=self._user_data(kind, group, secret.version),
                )
                for kind in group.kinds
            }
            needs = [*network.needs, *secret.needs, *rights]
            hosts = make_group(scope, group, templates, network.in_zones(zones[group.name]), needs)
            made.append(self._found(group, hosts))
        make_alarm(scope)
        return made

    def _user_data(
        self, kind: HostGroup, group: HostGroup, secret_version: pulumi.Output[str]
    ) -> pulumi.Output[str]:
        """Return a host's start script; a new secret changes it, since hosts read it once."""
        script = self._script(kind, self._lifecycle(group))
        marked = pulumi.Output.all(script, secret_version).apply(
            lambda found: f"{found[0]}# secret {found[1]}\n"
        )
        return marked.apply(ec2_user_data)

    def _lifecycle(self, group: HostGroup) -> dict[str, str]:
        """Return the settings by which a host lets its group end it."""
        return {
            "OSGYM_LIFECYCLE": f"{self._config.region} {self._scope.group_name(group)} {DRAIN_HOOK}",
            "OSGYM_DRAIN_TIMEOUT_S": str(round(self._config.drain_timeout_s)),
        }

    def _found(self, group: HostGroup, made: aws.autoscaling.Group) -> pulumi.Output[list[dict[str, Any]]]:
        """Return the hosts that the group has now; it may have others later."""
        asked = pulumi.InvokeOutputOptions(parent=self, depends_on=[made])
        found = aws.ec2.get_instances_output(
            filters=[
                aws.ec2.GetInstancesFilterArgs(name="tag:aws:autoscaling:groupName", values=[made.name])
            ],
            instance_state_names=["pending", "running"],
            region=self._config.region,
            opts=asked,
        )
        capacity = {kind.type: kind.replicas for kind in group.kinds}

        def host(id_: str) -> pulumi.Output[dict[str, Any]]:
            one = aws.ec2.get_instance_output(
                instance_id=id_, region=self._config.region, opts=pulumi.InvokeOutputOptions(parent=self)
            )
            address = one.private_ip if self._config.private else one.public_ip
            replicas = one.instance_type.apply(lambda type_: capacity.get(type_, group.replicas))
            return host_output(id_, group, self._args, one.availability_zone, address, replicas)

        hosts: pulumi.Output[list[dict[str, Any]]] = found.ids.apply(
            lambda ids: pulumi.Output.all(*[host(id_) for id_ in sorted(ids)])
        )
        return hosts


def make_alarm(scope: Scope) -> None:
    """Make a month's budget for resources with the fleet's tag, with mail when parts of it are used up.

    Costs are told apart by tags only where the account has activated them for that (Billing, "Cost
    allocation tags"); until then the budget stays at 0.
    """
    if not scope.config.alert_email:
        return
    aws.budgets.Budget(
        f"{scope.name}-budget",
        budget_type="COST",
        limit_amount=str(scope.args.blueprint.month_usd),
        limit_unit="USD",
        time_unit="MONTHLY",
        cost_filters=[
            aws.budgets.BudgetCostFilterArgs(
                name="TagKeyValue", values=[f"user:{FLEET_TAG}${scope.args.tags[FLEET_TAG]}"]
            )
        ],
        notifications=[
            aws.budgets.BudgetNotificationArgs(
                comparison_operator="GREATER_THAN",
                notification_type="ACTUAL",
                threshold=100 * part,
                threshold_type="PERCENTAGE",
                subscriber_email_addresses=[scope.config.alert_email],
            )
            for part in BUDGET_ALARMS
        ],
        tags=scope.tags("budget"),
        opts=scope.child,
    )
