"""Rollouts with Ray: actors that are spread over hosts by what these can hold, and a bounded buffer.

Needs ``pip install 'osgym-sdk[ray]'``.
"""

from __future__ import annotations

from osgym_sdk._extras import need_extra

need_extra("ray", "ray")

from osgym_sdk.ray.plan import ActorPlan, resource_of, spread  # noqa: E402 - after the check, which names the extra
from osgym_sdk.ray.rollouts import Rollouts  # noqa: E402 - the same

__all__ = ["ActorPlan", "Rollouts", "resource_of", "spread"]
