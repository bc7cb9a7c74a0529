"""Budget of a fleet, above which the cloud sends mail. Pure."""

from __future__ import annotations

import math

from osgym_infra.cost.price import DAYS_PER_MONTH
from osgym_infra.fleet.blueprint import Blueprint

THRESHOLDS = (0.5, 0.9, 1.0)
"""Parts of a month's budget at which mail is sent."""


def month_usd(blueprint: Blueprint) -> int:
    """Return the fleet's budget for a month, or its expected price, in whole dollars."""
    usd_per_day = blueprint.config.budget_usd_per_day or blueprint.usd_per_day or 0.0
    return max(1, math.ceil(usd_per_day * DAYS_PER_MONTH))
