"""Client of OSGym: thousands of real desktops for computer-use agents.

>>> from osgym_sdk import Client
>>> with Client("http://127.0.0.1:20000") as client, client.episode() as episode:  # doctest: +SKIP
...     obs = episode.step("click(100,200)")
...     obs.image.save("screen.png")
"""

from __future__ import annotations

from osgym_protocol.a11y import A11yTree
from osgym_protocol.a11y_node import A11yNode
from osgym_protocol.reach import CommandResult, ReachEvent, ReachKind, Window
from osgym_protocol.version import __version__ as __version__
from osgym_sdk._batch.batch import Batch
from osgym_sdk._batch.options import OnInvalid, RunArguments
from osgym_sdk._batch.policy import Policy, PolicyObject
from osgym_sdk._batch.progress import Progress, ProgressLine
from osgym_sdk._client import AsyncClient
from osgym_sdk._config import ClientSettings, Limits, Timeouts
from osgym_sdk._episode.checkpoints import AsyncCheckpoint
from osgym_sdk._episode.episode import AsyncEpisode, AsyncObservation
from osgym_sdk._episode.plan import EpisodeArguments
from osgym_sdk._episode.reach import Video
from osgym_sdk._episode.tunnel import Exposure
from osgym_sdk._exceptions import (
    AuthError,
    BadFrame,
    BadRequest,
    BranchFailed,
    CheckpointNotFound,
    CommandNotStarted,
    ConfigError,
    DatasetError,
    EpisodeEnded,
    EpisodeError,
    EpisodeLost,
    EvaluatorError,
    HostError,
    HostUnreachable,
    InvalidAction,
    ModelError,
    NoCapacity,
    OSGymError,
    PathNotFound,
    PathRefused,
    PortClosed,
    ProtocolError,
    RateLimited,
    ReachBusy,
    ReachError,
    ReachFailed,
    ReachForbidden,
    SetupFailed,
    StaleObservation,
    TaskError,
    TaskUnsupported,
    Timeout,
    TooLarge,
    Unsupported,
)
from osgym_sdk._fleet.scheduler import Ticket
from osgym_sdk._host_phase import HostPhase
from osgym_sdk._inputs.certified import certified_digests
from osgym_sdk._inputs.decision import Decision
from osgym_sdk._inputs.tasks import load_tasks
from osgym_sdk._models.evaluation import Evaluation, Failure
from osgym_sdk._models.observation import Observation, Timing
from osgym_sdk._models.recorder import EpisodeOutcome, EpisodeRecording, Recorder
from osgym_sdk._models.results import Group, Result
from osgym_sdk._models.trajectory import StepRecord, Trajectory
from osgym_sdk._sync.client import Client
from osgym_sdk._sync.episode import Checkpoint, Episode, SyncExposure, SyncObservation
from osgym_sdk._transport.calls import HostReply
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
    "A11yNode",
    "A11yTree",
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
    "ClientSettings",
    "CommandNotStarted",
    "CommandResult",
    "ConfigError",
    "DatasetError",
    "Decision",
    "Done",
    "Episode",
    "EpisodeArguments",
    "EpisodeEnded",
    "EpisodeError",
    "EpisodeLost",
    "EpisodeOutcome",
    "EpisodeRecording",
    "ErrorClass",
    "Evaluation",
    "EvaluatorError",
    "Exposure",
    "Failure",
    "Group",
    "HostError",
    "HostPhase",
    "HostReply",
    "HostState",
    "HostUnreachable",
    "ImageFormat",
    "InvalidAction",
    "Limits",
    "ModelError",
    "NoCapacity",
    "Notice",
    "OSGymError",
    "Observation",
    "ObserveOptions",
    "OnInvalid",
    "ParentInfo",
    "PathNotFound",
    "PathRefused",
    "Policy",
    "PolicyObject",
    "PortClosed",
    "Progress",
    "ProgressLine",
    "ProtocolError",
    "RateLimited",
    "ReachBusy",
    "ReachError",
    "ReachEvent",
    "ReachFailed",
    "ReachForbidden",
    "ReachKind",
    "Recorder",
    "Result",
    "RunArguments",
    "SettleOptions",
    "SettlePolicy",
    "SetupFailed",
    "SetupWarning",
    "StaleObservation",
    "StepRecord",
    "SyncExposure",
    "SyncObservation",
    "TaskError",
    "TaskUnsupported",
    "TerminationReason",
    "Ticket",
    "Timeout",
    "Timeouts",
    "Timing",
    "TooLarge",
    "Trajectory",
    "Unsupported",
    "Video",
    "Window",
    "certified_digests",
    "load_tasks",
]
