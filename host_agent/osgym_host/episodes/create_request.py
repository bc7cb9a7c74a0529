"""Bounds and result of a create, and a task's errors as its client gets them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from osgym_host.episodes.episode import HostEpisode
from osgym_host.errors import ServiceError
from osgym_host.tasks.downloads import DownloadCache
from osgym_host.tasks.errors import TaskError
from osgym_host.tasks.parse import parse_task
from osgym_host.tasks.policy import TaskPolicy
from osgym_host.tasks.sandbox import Sandbox
from osgym_host.tasks.schema import Task
from osgym_protocol.limits import MAX_LEASE_TTL_S, MAX_WAIT_S, MIN_LEASE_TTL_S
from osgym_protocol.observation import ObservedFrame


@dataclass(frozen=True, slots=True)
class TaskResources:
    """Resources for setup and evaluation that episodes share."""

    policy: TaskPolicy
    downloads: DownloadCache
    sandbox: Sandbox


@dataclass(frozen=True, slots=True)
class EpisodeLimits:
    """Bounds of what a client may ask for, in seconds."""

    max_wait_s: float = MAX_WAIT_S
    min_lease_ttl_s: float = MIN_LEASE_TTL_S
    max_lease_ttl_s: float = MAX_LEASE_TTL_S
    setup_s: float = 300.0
    evaluate_s: float = 300.0


@dataclass(frozen=True, slots=True)
class CreatedEpisode:
    episode: HostEpisode
    frame: ObservedFrame
    timing_ms: dict[str, float]


def read_task(given: Mapping[str, Any] | None) -> Task | None:
    """Parse the task of a create.

    Raises:
        ServiceError: `task_invalid`, `task_unsupported`.
    """
    if given is None:
        return None
    try:
        return parse_task(given)
    except TaskError as error:
        raise task_error(error) from error


def task_error(error: TaskError) -> ServiceError:
    return ServiceError(error.code, error.message, {**error.details, "error_class": error.error_class})
