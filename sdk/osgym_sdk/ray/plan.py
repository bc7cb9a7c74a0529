"""Plan of actors: their number, and the hosts beside which they run. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

from osgym_sdk._exceptions import ConfigError


@dataclass(frozen=True, slots=True)
class ActorPlan:
    """Plan of one actor: its host, and the number of replicas that it plays with at once."""

    host: str
    replicas: int


def resource_of(host: str) -> str:
    """Return the name of Ray's custom resource that counts a host's replicas: ``osgym:desk1:20000``."""
    return f"osgym:{urlsplit(host).netloc}"


def spread(capacity: Mapping[str, int], per_actor: int, replicas: int | None = None) -> list[ActorPlan]:
    """Return actors for ``replicas`` desktops (all that fit by default), most where there is most room.

    Args:
        capacity: replicas that each host can hold.
        per_actor: how many one actor plays with at most.
        replicas: how many in all, at most.

    Raises:
        ConfigError: there is room for none.
    """
    if per_actor < 1 or (replicas is not None and replicas < 1):
        raise ConfigError("replicas_per_actor and replicas must be 1 or more")
    left = {host: count for host, count in capacity.items() if count > 0}
    wanted = sum(left.values()) if replicas is None else min(replicas, sum(left.values()))
    if not wanted:
        raise ConfigError(f"no host holds a replica: {', '.join(capacity) or 'the client has no host'}")
    plans: list[ActorPlan] = []
    while wanted:
        host = max(left, key=lambda one: left[one])
        count = min(per_actor, left[host], wanted)
        plans.append(ActorPlan(host, count))
        left[host] -= count
        wanted -= count
    return plans


def missing_resources(
    plans: Sequence[ActorPlan], capacity: Mapping[str, int], cluster: Mapping[str, float]
) -> str:
    """Return what to do about resources that a cluster does not have; empty when it has them."""
    hosts = sorted({plan.host for plan in plans if resource_of(plan.host) not in cluster})
    if not hosts:
        return ""
    names = ", ".join(resource_of(host) for host in hosts)
    asked = "{" + ", ".join(f'"{resource_of(host)}": {capacity[host]}' for host in hosts) + "}"
    return (
        f"the cluster has no resource {names}: start a node near them with "
        f"ray start --resources={shlex.quote(asked)}, or pass resources=False"
    )
