"""Client of OSGym: thousands of real desktops for computer-use agents.

>>> from osgym_sdk import Client
>>> with Client("http://127.0.0.1:20000") as client, client.episode() as episode:  # doctest: +SKIP
...     obs = episode.step("click(100,200)")
...     obs.image.save("screen.png")
"""

from __future__ import annotations

from osgym_protocol.version import __version__ as __version__
from osgym_sdk._batch import Batch
from osgym_sdk._batch_episode import OnInvalid
from osgym_sdk._checkpoints import AsyncCheckpoint
from osgym_sdk._client import AsyncClient
from osgym_sdk._config import Limits, Timeouts
from osgym_sdk._episode import AsyncEpisode, AsyncObservation
from osgym_sdk._exceptions import (
    AuthError,
    BadFrame,
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
from osgym_sdk._observation import Observation, Timing
from osgym_sdk._policy import Policy, PolicyObject
from osgym_sdk._progress import Progress, ProgressLine
from osgym_sdk._results import Evaluation, Failure, Result, StepRecord, Trajectory
from osgym_sdk._sync import Checkpoint, Client, Episode, SyncObservation
from osgym_sdk._types import Ticket
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
    SetupWarning,
    TerminationReason,
)

__all__ = [
    "AsyncCheckpoint",
    "AsyncClient",
    "AsyncEpisode",
    "AsyncObservation",
    "AuthError",
    "BadFrame",
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
    "OnInvalid",
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
    "SetupWarning",
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
