"""End of a forgotten fleet at Google Cloud, and its budget alarm."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import pulumi
import pulumi_gcp as gcp
from pulumi_gcp import cloudscheduler

from osgym_infra.components.common import FLEET_TAG
from osgym_infra.config.readers import bad_key
from osgym_infra.fleet.blueprint import BUDGET_ALARMS
from osgym_infra.providers.gcp.scope import Scope

COMPUTE = "https://compute.googleapis.com/compute/v1"
LEAST_MINUTES = 3
"""A time that is over when the job exists would be a year away."""
PERMISSIONS = (
    "compute.instanceGroupManagers.get",
    "compute.instanceGroupManagers.update",
    "compute.autoscalers.get",
    "compute.autoscalers.update",
)


def make_end(scope: Scope, groups: Sequence[tuple[gcp.compute.RegionInstanceGroupManager, bool]]) -> None:
    """Let Cloud Scheduler end all hosts a configured time after the last `pulumi up`.

    Args:
        groups: Each with whether it follows the load: then that has to be turned off first.
    """
    if scope.config.ttl_hours is None:
        return
    account = gcp.serviceaccount.Account(
        f"{scope.name}-end",
        account_id=f"{scope.name}-end"[:30],
        display_name="Ends the hosts of an OSGym fleet",
        project=scope.project,
        opts=scope.child,
    )
    role = gcp.projects.IAMCustomRole(
        f"{scope.name}-end",
        role_id=f"{scope.name}-end".replace("-", "_"),
        title="Ends the hosts of an OSGym fleet",
        permissions=list(PERMISSIONS),
        project=scope.project,
        opts=scope.child,
    )
    gcp.projects.IAMMember(
        f"{scope.name}-end",
        project=scope.project,
        role=role.name,
        member=account.email.apply(lambda email: f"serviceAccount:{email}"),
        opts=scope.child,
    )
    ends = end_of(datetime.now(UTC), scope.config.ttl_hours)
    place = f"{COMPUTE}/projects/{scope.project}/regions/{scope.config.region}"
    for made, grows in groups:
        if grows:
            scaler = pulumi.Output.concat(place, "/autoscalers?autoscaler=", made.name)
            body = json.dumps({"autoscalingPolicy": {"mode": "OFF"}})
            _job(scope, made, "still", ends, "PATCH", scaler, account.email, body)
        away = pulumi.Output.concat(place, "/instanceGroupManagers/", made.name, "/resize?size=0")
        _job(scope, made, "end", ends + timedelta(minutes=2), "POST", away, account.email)


def end_of(now: datetime, ttl_hours: float) -> datetime:
    """Return when the fleet ends, in whole minutes."""
    least = now + timedelta(minutes=LEAST_MINUTES)
    return max(least, now + timedelta(hours=ttl_hours)).replace(second=0, microsecond=0)


def _job(
    scope: Scope,
    made: gcp.compute.RegionInstanceGroupManager,
    part: str,
    at: datetime,
    method: str,
    uri: pulumi.Input[str],
    account: pulumi.Input[str],
    body: str = "",
) -> None:
    cloudscheduler.Job(
        f"{made._name}-{part}",
        description="Ends the hosts of an OSGym fleet (osgym:ttl_hours); the next pulumi up puts it off",
        region=scope.config.region,
        project=scope.project,
        # Once: the year after, the fleet has another time or is gone.
        schedule=f"{at.minute} {at.hour} {at.day} {at.month} *",
        time_zone="Etc/UTC",
        retry_config=cloudscheduler.JobRetryConfigArgs(retry_count=5),
        http_target=cloudscheduler.JobHttpTargetArgs(
            uri=uri,
            http_method=method,
            body=base64.b64encode(body.encode()).decode() if body else None,
            headers={"Content-Type": "application/json"} if body else None,
            oauth_token=cloudscheduler.JobHttpTargetOauthTokenArgs(service_account_email=account),
        ),
        opts=pulumi.ResourceOptions(parent=made),
    )


def make_alarm(scope: Scope) -> None:
    """Make a budget for resources with the fleet's label, with mail when it is used up.

    Raises:
        BadInput: Budgets belong to a billing account, which nothing else names.
    """
    config = scope.config
    account = str(config.own["billing_account"])
    if not config.alert_email:
        return
    if not account:
        raise bad_key(
            "billing_account",
            "is required with alert_email, since budgets belong to a billing account",
            "XXXXXX-XXXXXX-XXXXXX, from gcloud billing accounts list",
        )
    channel = gcp.monitoring.NotificationChannel(
        f"{scope.name}-alarm",
        type="email",
        display_name=f"OSGym fleet {scope.name}",
        labels={"email_address": config.alert_email},
        user_labels=scope.labels,
        project=scope.project,
        opts=scope.child,
    )
    usd = scope.args.blueprint.month_usd
    gcp.billing.Budget(
        f"{scope.name}-budget",
        billing_account=account,
        display_name=f"OSGym fleet {scope.name}"[:60],
        budget_filter=gcp.billing.BudgetBudgetFilterArgs(
            projects=[f"projects/{scope.project}"], labels={FLEET_TAG: scope.labels[FLEET_TAG]}
        ),
        amount=gcp.billing.BudgetAmountArgs(
            specified_amount=gcp.billing.BudgetAmountSpecifiedAmountArgs(currency_code="USD", units=str(usd))
        ),
        threshold_rules=[
            gcp.billing.BudgetThresholdRuleArgs(threshold_percent=part) for part in BUDGET_ALARMS
        ],
        all_updates_rule=gcp.billing.BudgetAllUpdatesRuleArgs(
            monitoring_notification_channels=[channel.id], disable_default_iam_recipients=False
        ),
        opts=scope.child,
    )
