"""Who is told by AWS what a fleet costs."""

from __future__ import annotations

import pulumi_aws as aws

from osgym_infra.components.common import FLEET_TAG
from osgym_infra.fleet.budgets import THRESHOLDS, month_usd
from osgym_infra.providers.aws.scope import Scope


def make_alarm(scope: Scope) -> None:
    """A month's budget for what carries the fleet's tag, and mail when parts of it are used up.

    Costs are told apart by tags only where the account has activated them for that (Billing, "Cost
    allocation tags"); until then the budget stays at 0.
    """
    if not scope.config.alert_email:
        return
    aws.budgets.Budget(
        f"{scope.name}-budget",
        budget_type="COST",
        limit_amount=str(month_usd(scope.args.blueprint)),
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
            for part in THRESHOLDS
        ],
        tags=scope.tags("budget"),
        opts=scope.child,
    )
