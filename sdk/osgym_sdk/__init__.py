"""Client of OSGym: thousands of real desktops for computer-use agents.

>>> from osgym_sdk import Client
>>> with Client("http://127.0.0.1:20000") as client, client.episode() as episode:  # doctest: +SKIP
...     obs = episode.step("click(100,200)")
...     obs.image.save("screen.png")
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from osgym_sdk._batch import Batch, Policy, PolicyObject
    from osgym_sdk._checkpoints import AsyncCheckpoint
    from osgym_sdk._client import AsyncClient
    from osgym_sdk._config import Limits, Timeouts
    from osgym_sdk._episode import AsyncEpisode
    from osgym_sdk._exceptions import (
        AuthError,
        BadRequest,
        BranchFailed,
        CheckpointNotFound,
        ConfigError,
        EpisodeEnded,
        EpisodeError,
        EpisodeLost,
        EvaluatorError,
        HostError,
        HostUnreachable,
        InvalidAction,
        NoCapacity,
        OSGymError,
        ProtocolError,
        SetupFailed,
        StaleObservation,
        TaskError,
        TaskUnsupported,
        Timeout,
        Unsupported,
    )
    from osgym_sdk._observation import AsyncObservation, Observation, Timing
    from osgym_sdk._placing import Ticket
    from osgym_sdk._progress import Progress, ProgressLine
    from osgym_sdk._records import Evaluation, Failure, Result, StepRecord, Trajectory
    from osgym_sdk._sync import Checkpoint, Client, Episode, SyncObservation
    from osgym_sdk.wire import (
        Done,
        ErrorClass,
        HostState,
        ImageFormat,
        Notice,
        ObserveOptions,
        ParentInfo,
        SettleOptions,
        SettlePolicy,
        TerminationReason,
    )

__version__ = "0.1.0"

# The host imports osgym_sdk.wire alone and must not pay for httpx, so names are loaded when first used.
_HOME = {
    "_batch": ("Batch", "Policy", "PolicyObject"),
    "_checkpoints": ("AsyncCheckpoint",),
    "_client": ("AsyncClient",),
    "_config": ("Limits", "Timeouts"),
    "_episode": ("AsyncEpisode",),
    "_exceptions": (
        "AuthError",
        "BadRequest",
        "BranchFailed",
        "CheckpointNotFound",
        "ConfigError",
        "EpisodeEnded",
        "EpisodeError",
        "EpisodeLost",
        "EvaluatorError",
        "HostError",
        "HostUnreachable",
        "InvalidAction",
        "NoCapacity",
        "OSGymError",
        "ProtocolError",
        "SetupFailed",
        "StaleObservation",
        "TaskError",
        "TaskUnsupported",
        "Timeout",
        "Unsupported",
    ),
    "_observation": ("AsyncObservation", "Observation", "Timing"),
    "_placing": ("Ticket",),
    "_progress": ("Progress", "ProgressLine"),
    "_records": ("Evaluation", "Failure", "Result", "StepRecord", "Trajectory"),
    "_sync": ("Checkpoint", "Client", "Episode", "SyncObservation"),
    "wire": (
        "Done",
        "ErrorClass",
        "HostState",
        "ImageFormat",
        "Notice",
        "ObserveOptions",
        "ParentInfo",
        "SettleOptions",
        "SettlePolicy",
        "TerminationReason",
    ),
}
_MODULE_OF = {name: module for module, names in _HOME.items() for name in names}

__all__ = [
    "AsyncCheckpoint",
    "AsyncClient",
    "AsyncEpisode",
    "AsyncObservation",
    "AuthError",
    "BadRequest",
    "Batch",
    "BranchFailed",
    "Checkpoint",
    "CheckpointNotFound",
    "Client",
    "ConfigError",
    "Done",
    "Episode",
    "EpisodeEnded",
    "EpisodeError",
    "EpisodeLost",
    "ErrorClass",
    "Evaluation",
    "EvaluatorError",
    "Failure",
    "HostError",
    "HostState",
    "HostUnreachable",
    "ImageFormat",
    "InvalidAction",
    "Limits",
    "NoCapacity",
    "Notice",
    "OSGymError",
    "Observation",
    "ObserveOptions",
    "ParentInfo",
    "Policy",
    "PolicyObject",
    "Progress",
    "ProgressLine",
    "ProtocolError",
    "Result",
    "SettleOptions",
    "SettlePolicy",
    "SetupFailed",
    "StaleObservation",
    "StepRecord",
    "SyncObservation",
    "TaskError",
    "TaskUnsupported",
    "TerminationReason",
    "Ticket",
    "Timeout",
    "Timeouts",
    "Timing",
    "Trajectory",
    "Unsupported",
]


def __getattr__(name: str) -> Any:
    module = _MODULE_OF.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(importlib.import_module(f"{__name__}.{module}"), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
