"""What the API serves: handed in by the composition root."""

from __future__ import annotations

from dataclasses import dataclass

from prometheus_client import CollectorRegistry

from osgym_host.api.security import AccessPolicy
from osgym_host.episodes.checkpoints import Checkpoints
from osgym_host.episodes.creating import Creator
from osgym_host.episodes.draining import Draining
from osgym_host.episodes.host import HostView
from osgym_host.episodes.metrics import EpisodeMetrics
from osgym_host.episodes.recorder import Recorder
from osgym_host.episodes.requests import Requests
from osgym_host.episodes.service import EpisodeService


@dataclass(frozen=True, slots=True)
class OsgymOptions:
    """Settings of the OSGym-compatible API."""

    max_steps: int = 100
    wait_s: float = 120.0


@dataclass(frozen=True, slots=True)
class Backend:
    """The parts behind the API."""

    episodes: EpisodeService
    creator: Creator
    checkpoints: Checkpoints
    requests: Requests
    host: HostView
    drain: Draining
    recorder: Recorder
    metrics: EpisodeMetrics
    registry: CollectorRegistry
    access: AccessPolicy
    osgym: OsgymOptions
