"""Parts that the API serves, made by the composition root."""

from __future__ import annotations

from dataclasses import dataclass

from prometheus_client import CollectorRegistry

from osgym_host.episodes.checkpoints import Checkpoints
from osgym_host.episodes.creator import EpisodeCreator
from osgym_host.episodes.draining import DrainController
from osgym_host.episodes.history import History
from osgym_host.episodes.host_status import HostStatus
from osgym_host.episodes.interventions import Interventions
from osgym_host.episodes.reach import ReachService
from osgym_host.episodes.replays import ReplayPages
from osgym_host.episodes.requests import RequestRegistry
from osgym_host.episodes.runs import RunLog
from osgym_host.episodes.screenshots import ScreenshotCache
from osgym_host.episodes.service import EpisodeService
from osgym_host.http.access import AccessPolicy


@dataclass(frozen=True, slots=True)
class OsgymOptions:
    """Settings of the OSGym-compatible API."""

    max_steps: int = 100
    wait_s: float = 120.0
    make_way_s: float = 10.0


@dataclass(frozen=True, slots=True)
class Backend:
    episodes: EpisodeService
    creator: EpisodeCreator
    checkpoints: Checkpoints
    requests: RequestRegistry
    reaches: ReachService
    host: HostStatus
    drain: DrainController
    screenshots: ScreenshotCache
    interventions: Interventions
    history: History
    runs: RunLog
    replays: ReplayPages
    registry: CollectorRegistry
    access: AccessPolicy
    osgym: OsgymOptions
