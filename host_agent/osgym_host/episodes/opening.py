"""What a create asks for, what it gives, and how a task's errors look to its client."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from osgym_host.episodes.episode import Episode
from osgym_host.episodes.errors import EpisodeError
from osgym_host.episodes.journal import RequestMark
from osgym_host.episodes.moment import Options
from osgym_host.guest import GuestFrame
from osgym_host.tasks.interface import (
    DownloadCache,
    Sandbox,
    Task,
    TaskError,
    TaskPolicy,
    parse_task,
)
from osgym_sdk.wire import ErrorInfo


@dataclass(frozen=True, slots=True)
class TaskParts:
    """What setup and evaluation share between episodes."""

    policy: TaskPolicy
    downloads: DownloadCache
    sandbox: Sandbox


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds on what a client may ask for, in seconds."""

    max_wait_s: float = 600.0
    min_lease_ttl_s: float = 1.0
    max_lease_ttl_s: float = 3600.0
    setup_s: float = 300.0
    evaluate_s: float = 300.0


@dataclass(frozen=True, slots=True)
class Wish:
    """What a client asks for in a create. With a `checkpoint` the episode goes on from that."""

    task: Mapping[str, Any] | None = None
    wait_s: float = 60.0
    lease_ttl_s: float = 60.0
    max_steps: int | None = None
    observe: Options | None = None
    settle: Options | None = None
    checkpoint: str | None = None
    mark: RequestMark | None = None


@dataclass(frozen=True, slots=True)
class Opened:
    """A new episode with its first frame."""

    episode: Episode
    frame: GuestFrame
    timing_ms: dict[str, float]


def read_task(given: Mapping[str, Any] | None) -> Task | None:
    """Parses the task of a create.

    Raises:
        EpisodeError: `task_invalid`, `task_unsupported`.
    """
    if given is None:
        return None
    try:
        return parse_task(given)
    except TaskError as error:
        raise task_error(error) from error


def task_error(error: TaskError) -> EpisodeError:
    """Returns what a client is told of a task's error."""
    code = "task_unsupported" if error.code == "task_refused" else error.code
    info = ErrorInfo(code, error.message, {**error.details, "error_class": error.error_class})
    return EpisodeError(info.code, error.http_status, info.message, info.details)
