"""The composition root: settings in, a running host agent out."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections.abc import Sequence
from pathlib import Path

from fastapi import FastAPI
from prometheus_client import CollectorRegistry, PlatformCollector, ProcessCollector

from osgym_host.api.app import make_app
from osgym_host.api.backend import Backend, OsgymOptions
from osgym_host.api.metrics import HostCollector
from osgym_host.core.admission import Budget
from osgym_host.core.cpu_credit import CreditTerms
from osgym_host.core.desktop_budget import DesktopBudget
from osgym_host.core.plan import PoolSpec
from osgym_host.core.rate_limit import RateLimit
from osgym_host.core.reasons import Reason
from osgym_host.core.rest import AWAKE_PER_CORE, RestTerms
from osgym_host.core.warm_apps import parse_warm_apps
from osgym_host.core.wrong_tokens import WrongTokens
from osgym_host.episodes.checkpoint_store import Checkpoint, CheckpointStore
from osgym_host.episodes.checkpoints import Checkpoints
from osgym_host.episodes.create_request import EpisodeLimits, TaskResources
from osgym_host.episodes.creator import EpisodeCreator
from osgym_host.episodes.draining import DrainController
from osgym_host.episodes.forks import EpisodeForks
from osgym_host.episodes.history import History
from osgym_host.episodes.host_status import HostIdentity, HostStatus, load_probe
from osgym_host.episodes.interventions import Interventions
from osgym_host.episodes.journal import EpisodeJournal
from osgym_host.episodes.metrics import EpisodeMetrics
from osgym_host.episodes.reach import ReachService
from osgym_host.episodes.recorder import RecordMode, TrajectoryRecorder
from osgym_host.episodes.recovery import EpisodeRecovery
from osgym_host.episodes.replays import ReplayPages
from osgym_host.episodes.requests import RequestRegistry
from osgym_host.episodes.runs import RunLog
from osgym_host.episodes.screenshots import ScreenshotCache
from osgym_host.episodes.served_images import ServedImages
from osgym_host.episodes.service import EpisodeService
from osgym_host.episodes.task_templates import TaskTemplate, TaskTemplates
from osgym_host.episodes.untouched import UntouchedCheck
from osgym_host.http.access import AccessPolicy
from osgym_host.http.tokens import TokenFile
from osgym_host.images.calibration import replica_environment
from osgym_host.notices.sources import METADATA_URL, sources_of
from osgym_host.notices.watch import NoticeWatch
from osgym_host.replicas.brancher import ReplicaBrancher
from osgym_host.replicas.events import EventLog
from osgym_host.replicas.journal import ReplicaJournal, host_id
from osgym_host.replicas.manager import Deadlines
from osgym_host.replicas.pool import Pool
from osgym_host.replicas.replica_set import ReplicaSet
from osgym_host.replicas.saved_desktops import SavedDesktops
from osgym_host.replicas.usage_monitor import UsageOptions
from osgym_host.replicas.warming import Warming
from osgym_host.runtime_factory import clear_other_leftovers, make_runtime, runtime_kind
from osgym_host.runtimes import base
from osgym_host.runtimes.kind import ImageRef
from osgym_host.runtimes.swap import read_swap
from osgym_host.scaling.publish import PressurePublisher
from osgym_host.scaling.publishers import publisher_of
from osgym_host.settings import Settings
from osgym_host.tasks.downloads import DownloadCache
from osgym_host.tasks.policy import TaskPolicy
from osgym_host.tasks.sandbox import Sandbox
from osgym_host.tracing import StepTracer
from osgym_protocol.host_api import HostImage
from osgym_protocol.version import __version__

log = logging.getLogger(__name__)

RUNTIME_STOP_S = 20.0
TRACER_STOP_S = 5.0


class HostAgent:
    """All parts of one host agent, made from settings; `start` and `stop` are its life."""

    def __init__(
        self,
        settings: Settings,
        image: ImageRef,
        runtime: base.Runtime | None = None,
        tracer: StepTracer | None = None,
        more_images: Sequence[ImageRef] = (),
    ) -> None:
        """Make the parts. Nothing runs yet, nothing is written but the name of the host.

        Args:
            image: Image of episodes that name none.
            more_images: Other images that are served, each of another digest.
            tracer: makes the spans of steps whose clients ask for them; it is closed with the agent.

        Raises:
            OSError: The data directory cannot be written.
            ImageError: An image's calibration cannot be read.
            TokensError: The file of tokens cannot be used.
        """
        self.settings = settings
        self._images = {ref.image.digest: ref for ref in (image, *more_images)}
        self._checks_host = runtime is None
        self.runtime = runtime or make_runtime(settings, image)
        self.events = EventLog()
        self.registry = CollectorRegistry()
        self._sandbox = Sandbox()
        self._screen = image.screen or base.Screen(*settings.screen)
        calibrated = settings.calibrated_horizons != "off"
        self._environments = {
            digest: replica_environment(ref.image) if calibrated else ()
            for digest, ref in self._images.items()
        }
        self._size_px = (self._screen.width_px, self._screen.height_px)
        kind = runtime_kind(settings.runtime)
        self._ram_mib = max(kind.replica_ram_mib(settings, ref) for ref in self._images.values())
        state_dir = settings.data_dir / "state" / settings.instance
        self._journal = ReplicaJournal(state_dir / "journal.jsonl")
        self.pool = self._make_pool()
        self.episodes = self._make_service(state_dir)
        self.episodes.tracer = tracer
        self.drain = DrainController(pool=self.pool, episodes=self.episodes, margin_s=settings.drain_margin_s)
        self._watch = NoticeWatch(sources_of(settings.notices, _metadata_url()), self.drain.update)
        self._brancher = ReplicaBrancher(self.pool)
        tasks = self._task_resources()
        identity = self._identity()
        creator = EpisodeCreator(
            images=ServedImages(identity.images),
            service=self.episodes,
            pool=self.pool,
            tasks=tasks,
            templates=self._make_templates(tasks),
            screen=self._size_px,
        )
        self._untouched = UntouchedCheck(creator)
        self.episodes.judge = self._untouched.judge
        self._checkpoints = Checkpoints(creator, self._brancher, _checkpoint_store(settings, state_dir))
        forks = EpisodeForks(creator, self._brancher)
        self._requests = RequestRegistry(creator, forks, self._checkpoints)
        self._recovery = EpisodeRecovery(creator, self._brancher, self.runtime)
        self.view = HostStatus(identity, self.pool, self.episodes, self.drain, self._watch.state)
        self._runs = RunLog(self.episodes)
        self._history = History(self.view, self.episodes.metrics, settings.usd_per_hour)
        self._pressure = _pressure_publisher(settings, self.view)
        self.backend = Backend(
            episodes=self.episodes,
            creator=creator,
            checkpoints=self._checkpoints,
            requests=self._requests,
            reaches=ReachService(self.episodes, self.view.offered),
            host=self.view,
            drain=self.drain,
            screenshots=ScreenshotCache(self.pool.replicas, self._size_px),
            interventions=Interventions(self.episodes),
            history=self._history,
            runs=self._runs,
            replays=ReplayPages(self.episodes.recorder),
            registry=self.registry,
            access=_access(settings),
            osgym=OsgymOptions(settings.osgym_max_steps, settings.osgym_wait_s, settings.osgym_make_way_s),
        )
        self.registry.register(HostCollector(self.view))
        ProcessCollector(registry=self.registry)
        PlatformCollector(registry=self.registry)

    def _make_pool(self) -> Pool:
        settings = self.settings
        deadlines = Deadlines(boot_s=settings.boot_timeout_s)
        templates = DesktopBudget(
            settings.task_templates_max_mib, settings.task_templates_max, displaces=True
        )
        budgets = {Checkpoint: DesktopBudget(settings.checkpoints_max_mib), TaskTemplate: templates}
        saved = SavedDesktops(self.runtime, budgets)
        warming = {
            digest: Warming(
                saved,
                parse_warm_apps(ref.warm_apps),
                parse_warm_apps(settings.warm_apps),
                clones=settings.warm_clones == "on",
            )
            for digest, ref in self._images.items()
        }
        return Pool(
            replicas=ReplicaSet(saved, self._journal, deadlines, self._make_spec, warming),
            events=self.events,
            spec=PoolSpec(
                settings.warm,
                settings.max_starting or len(os.sched_getaffinity(0)),
                per_image_min=settings.warm_per_image_min,
            ),
            budget=_budget(settings, self._ram_mib),
            probe=lambda: load_probe(settings.data_dir),
            usage_options=UsageOptions(
                disk_cap_mib=settings.replica_disk_mib or None, disk_reserve_mib=settings.disk_reserve_mib
            ),
            credit_terms=CreditTerms(burst_cpu_s=settings.replica_cpu_burst_s),
            rest_terms=_rest_terms(settings),
        )

    def _make_service(self, state_dir: Path) -> EpisodeService:
        settings = self.settings
        mode = RecordMode(settings.trajectory)
        return EpisodeService(
            events=self.events,
            recorder=TrajectoryRecorder(
                settings.data_dir / "trajectories",
                mode,
                settings.trajectory_max_mib,
                settings.trajectory_episode_max_mib,
            ),
            journal=EpisodeJournal(state_dir / "episodes"),
            metrics=EpisodeMetrics(self.registry),
            limits=_limits(settings),
        )

    def _task_resources(self) -> TaskResources:
        settings = self.settings
        policy = TaskPolicy(
            task_files_dir=settings.task_files_dir,
            allow_downloads=settings.allow_downloads,
            allow_private_addresses=settings.allow_private_addresses,
            disk_reserve_bytes=settings.disk_reserve_mib << 20,
        )
        cache = DownloadCache(settings.data_dir / "cache" / "downloads", policy)
        return TaskResources(policy, cache, self._sandbox)

    def _make_templates(self, tasks: TaskResources) -> TaskTemplates:
        settings = self.settings
        return TaskTemplates(
            self._brancher,
            enabled=settings.task_templates == "on",
            connects=settings.egress != "none" or settings.web != "off",
            downloads=tasks.downloads,
            events=self.events,
        )

    def _identity(self) -> HostIdentity:
        return HostIdentity(
            host_id=host_id(self.settings.data_dir),
            version=__version__,
            runtime=self.runtime.name,
            images=tuple(HostImage(digest, ref.flavor) for digest, ref in self._images.items()),
            screen=self._size_px,
        )

    async def start(self) -> base.StartReport:
        """Take the data directory, clear a killed predecessor's leftovers, begin to fill the pool.

        Raises:
            RuntimeFault: The runtime cannot run here, or another agent uses the directory.
            OSError: The data directory cannot be written.
        """
        if self._checks_host:
            for ref in self._images.values():
                await runtime_kind(self.settings.runtime).check_image(self.settings, ref)
            await clear_other_leftovers(self.settings)
        report = await self.runtime.start()
        try:
            self._check_capabilities()
            self._journal.open()
            self.episodes.recorder.start()
            survivors = await self._recovery.recover(report.adoptable)
            self._requests.remember(survivors)
            self._checkpoints.start(report.points)
            self.pool.replicas.saved.start()
        except BaseException:
            await self.runtime.stop()
            raise
        for note in self.runtime.capabilities().notes:
            log.warning("runtime %s: %s", self.runtime.name, note)
        adopted = [manager.replica_id for manager in self.pool.replicas.managers()]
        gone = [name for name in self._journal.leftovers if name not in adopted]
        if self._journal.leftovers or report.reaped_replicas:
            log.warning(
                "a previous host agent was killed: %d of its replicas and %d processes were removed, %d "
                "replicas continue",
                max(report.reaped_replicas, len(gone)),
                report.reaped_processes,
                len(adopted),
            )
            self.events.add("leftovers", replicas=gone, adopted=adopted)
        self.pool.start()
        self.episodes.start()
        self.drain.start()
        self._watch.start()
        self._history.start()
        if self._pressure is not None:
            self._pressure.start()
        return report

    def _check_capabilities(self) -> None:
        """Refuse what the runtime cannot do, instead of failing for each replica."""
        allowed = self.runtime.capabilities().egress
        if base.Egress(self.settings.egress) not in allowed:
            names = ", ".join(sorted(e.value for e in allowed))
            raise base.RuntimeUnsupported(
                f"the runtime {self.runtime.name} cannot do egress {self.settings.egress!r}.",
                remedy=f"Set egress to one of: {names}.",
            )

    def begin_stop(self) -> None:
        """End long waits, so that the server can finish its connections."""
        self.view.stopping = True
        self.drain.stop()
        self.events.add("stopping")
        self.events.close()
        self.pool.stop_leasing()

    def end_episodes(self) -> None:
        """End what is still open while the server waits: calls in flight get an answer that says why."""
        self.episodes.end_all(Reason.SHUTDOWN)
        self.pool.replicas.retire_all(Reason.SHUTDOWN)

    async def stop(self) -> None:
        """End every episode and replica; afterwards no process, mount or file of them is left.

        Raises:
            ReplicaDestroyFailed: Something is left; all else was removed.
        """
        self.begin_stop()
        if self._pressure is not None:
            await self._pressure.close()
        await self._watch.close()
        await self._history.close()
        await self.drain.close()
        await self.episodes.close()
        await self._untouched.close()
        if not await self.pool.close(self.settings.stop_timeout_s):
            log.error("some replicas did not end within %g s", self.settings.stop_timeout_s)
        try:
            async with asyncio.timeout(RUNTIME_STOP_S):
                await self.runtime.stop()
        except TimeoutError:
            log.exception("the runtime did not stop within %g s", RUNTIME_STOP_S)
        finally:
            await self._sandbox.aclose()
            await asyncio.to_thread(self.episodes.recorder.close)
            await self._close_tracer()
            self._journal.close()
            self.episodes.journal.clear()

    async def _close_tracer(self) -> None:
        """Send the last spans, within bounds."""
        if self.episodes.tracer is None:
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(TRACER_STOP_S):
                await asyncio.to_thread(self.episodes.tracer.close)

    def app(self) -> FastAPI:
        """Return the application; the agent's life is not tied to it."""
        return make_app(self.backend)

    def _make_spec(self, replica_id: str, generation: int, image: str) -> base.ReplicaSpec:
        settings = self.settings
        return base.ReplicaSpec(
            replica_id=replica_id,
            generation=generation,
            image=self._images[image].image,
            screen=self._screen,
            ram_mib=self._ram_mib,
            cpus=settings.replica_cpus or None,
            pids=settings.replica_pids,
            egress=base.Egress(settings.egress),
            environment=self._environments[image],
        )


def _checkpoint_store(settings: Settings, state_dir: Path) -> CheckpointStore:
    if settings.checkpoints_dir is None:
        return CheckpointStore(state_dir / "checkpoints")
    return CheckpointStore(settings.checkpoints_dir / "episodes", shared=True)


def _budget(settings: Settings, ram_mib: int) -> Budget:
    return Budget(
        max_replicas=settings.max_replicas,
        ram_reserve_mib=settings.ram_reserve_mib,
        ram_cap_mib=ram_mib,
        cpu_per_replica=settings.cpu_per_replica,
        disk_reserve_mib=settings.disk_reserve_mib,
    )


def _rest_terms(settings: Settings) -> RestTerms | None:
    """Return when replicas rest; None: never.

    Raises:
        OSError: The kernel does not say what swap there is.
    """
    rest, swap = settings.rest, read_swap()
    if rest == "auto":
        by_default = runtime_kind(settings.runtime).rests_by_default
        rest = "reclaim" if by_default and swap.compressed else "off"
    if rest == "off":
        return None
    if rest == "reclaim" and not swap.total_mib:
        log.warning("rest=reclaim: this host has no swap, so replicas are only paused; see `osgym doctor`")
        rest = "pause"
    return RestTerms(
        pause_after_s=settings.rest_after_s,
        reclaim_after_s=settings.reclaim_after_s if rest == "reclaim" else 0.0,
        awake=settings.rest_awake or AWAKE_PER_CORE * len(os.sched_getaffinity(0)),
    )


def _metadata_url() -> str:
    """The cloud's metadata service is elsewhere in tests only."""
    return os.environ.get("OSGYM_TEST_METADATA", METADATA_URL)


def _pressure_publisher(settings: Settings, status: HostStatus) -> PressurePublisher | None:
    publisher = publisher_of(settings.metrics_to, settings.metrics_fleet, _metadata_url())
    if publisher is None:
        return None
    return PressurePublisher(publisher, status.lease_pressure_percent, settings.metrics_every_s)


def _limits(settings: Settings) -> EpisodeLimits:
    return EpisodeLimits(
        max_wait_s=settings.wait_max_s,
        max_lease_ttl_s=settings.lease_ttl_max_s,
        setup_s=settings.setup_timeout_s,
        evaluate_s=settings.evaluate_timeout_s,
    )


def _access(settings: Settings) -> AccessPolicy:
    token = settings.token.get_secret_value() if settings.token is not None else None
    return AccessPolicy(
        token or None,
        tuple(settings.allowed_ips),
        frozenset(settings.allowed_hosts),
        tokens=None if settings.tokens_file is None else TokenFile(settings.tokens_file),
        rate=RateLimit(settings.token_calls_per_s, settings.token_calls_burst),
        token_rate=RateLimit(settings.main_token_calls_per_s, settings.token_calls_burst),
        wrong=WrongTokens(settings.wrong_tokens_per_min),
        look_cpu_percent=settings.look_cpu_percent,
    )
