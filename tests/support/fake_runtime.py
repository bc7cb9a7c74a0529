"""A runtime for tests of the service: replicas are small HTTP servers on real unix sockets.

They speak the guest protocol (sequence numbers, records, errors) and can be told to die, hang, talk
nonsense or start anew, but have no desktop. What needs one is tested against the local runtime.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import secrets
import shutil
import threading
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import httpx

from osgym_host.addresses import GuestAddress, UnixAddress
from osgym_host.app import HostAgent
from osgym_host.runtimes import base
from osgym_host.runtimes.kind import ImageRef
from osgym_host.server import HostServer, bind, urls
from osgym_host.settings import Settings
from osgym_protocol.records import Record, decode_record
from tests.support.fake_guest import Guest, GuestServer


@dataclass(frozen=True)
class FakeManifest:
    """What a runtime reads of a manifest."""

    uid_base: int = 100000
    gid_base: int = 100000


@dataclass(frozen=True)
class FakeImage:
    """An image that nothing is cloned from."""

    digest: str = "0" * 64
    rootfs: Path = Path("/nonexistent")
    manifest: FakeManifest = FakeManifest()


class FakeReplica(base.Replica):
    """One replica."""

    def __init__(self, spec: base.ReplicaSpec, folder: Path) -> None:
        super().__init__(spec)
        self.folder = folder
        self.agent = Guest(spec.replica_id, spec.generation)
        self._server = GuestServer(self.agent)

    pid = property(lambda self: 1)

    @property
    def guest(self) -> GuestAddress:
        return UnixAddress(self.folder / "agent.sock")

    async def start(self) -> None:
        self.folder.mkdir(parents=True)
        await self._server.start(self.folder / "agent.sock")

    def die(self, reason: base.ExitReason = base.ExitReason.KILLED, console: str = "") -> None:
        """Ends it as if all its processes were killed, with this at the end of its console."""
        if self.exit_info is None:
            self._server.stop()
            self.mark_dead(base.ExitInfo(reason, "for the test", log_tail=console))


class Points:
    """Branch points: the states of guests, kept ones as files."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.states: dict[str, dict[str, Any]] = {}
        self.taken = 0

    def kept(self) -> tuple[base.BranchPoint, ...]:
        """Reads what a former runtime kept."""
        found = [json.loads(path.read_text()) for path in sorted(self.folder.glob("*.json"))]
        self.states.update({entry["point"]["point_id"]: entry["state"] for entry in found})
        return tuple(base.BranchPoint(**entry["point"]) for entry in found)

    def add(self, replica: base.Replica, state: dict[str, Any], keep: bool) -> base.BranchPoint:
        self.taken += 1
        point = base.BranchPoint(
            point_id="p" + secrets.token_hex(4),
            image_digest=replica.spec.image.digest,
            replica_id=replica.replica_id,
            generation=replica.generation,
            kept=keep,
            created_at=time.time(),
            pause_ms=1.5,
            ram_mib=40.0,
            disk_mib=2.0,
        )
        self.put(point, state)
        return point

    def put(self, point: base.BranchPoint, state: dict[str, Any]) -> None:
        self.states[point.point_id] = state
        if point.kept:
            self.folder.mkdir(parents=True, exist_ok=True)
            text = json.dumps({"point": asdict(point), "state": state})
            (self.folder / f"{point.point_id}.json").write_text(text)

    def remove(self, point: base.BranchPoint) -> None:
        self.states.pop(point.point_id, None)
        (self.folder / f"{point.point_id}.json").unlink(missing_ok=True)

    def state(self, point: base.BranchPoint) -> dict[str, Any]:
        if point.point_id not in self.states:
            raise base.PointNotFound(point.point_id)
        return self.states[point.point_id]


class FakeRuntime(base.Runtime):
    """Makes fake replicas; can be told to fail or to take its time."""

    def __init__(self, folder: Path, *, branching: bool = True, points: Path | None = None) -> None:
        self.folder = folder
        self.branching = branching
        self.points = Points(points or folder.with_name("points"))
        self.fail_branches = 0
        self.fail_children: set[int] = set()
        """Children of a branch that fail, counted from 0."""
        self._children = 0
        self.alive: dict[str, FakeReplica] = {}
        self.created = 0
        self.made = 0
        self.destroyed = 0
        self.fail_creates = 0
        self.create_gate = asyncio.Event()
        self.create_gate.set()
        self.boot_ready = True
        self.pss_mib = 100.0
        self.overlay_mib: dict[str, float] = {}
        self.disk_free_mib = 10_000.0
        self.slow_to_measure: dict[str, asyncio.Event] = {}
        self.stopped = False
        self.pausable = False
        self.paused: set[str] = set()
        """Ids of the replicas that are paused."""

    @property
    def name(self) -> str:
        return "fake"

    def capabilities(self) -> base.Capabilities:
        egress = frozenset({base.Egress.NONE})
        return base.Capabilities("fake", False, False, False, egress, False, branching=self.branching)

    async def start(self) -> base.StartReport:
        return base.StartReport(points=self.points.kept())

    async def create(self, spec: base.ReplicaSpec) -> base.Replica:
        self.created += 1
        await self.create_gate.wait()
        if self.fail_creates > 0:
            self.fail_creates -= 1
            raise base.ReplicaCreateFailed("no room", step="mount", replica_id=spec.replica_id)
        replica = FakeReplica(spec, self.folder / spec.replica_id)
        if spec.origin is not None:
            self._children += 1
            if self._children - 1 in self.fail_children:
                raise base.ReplicaCreateFailed("no child", step="load", replica_id=spec.replica_id)
            replica.agent.take(self.points.state(spec.origin))
        if not self.boot_ready:
            replica.agent.ready.clear()
        self.alive[spec.replica_id] = replica
        try:
            await replica.start()
        except BaseException:
            await self.destroy(replica)
            raise
        self.made += 1
        return replica

    async def destroy(self, replica: base.Replica) -> None:
        assert isinstance(replica, FakeReplica)
        replica.die(base.ExitReason.DESTROYED)
        shutil.rmtree(replica.folder, ignore_errors=True)
        if self.alive.pop(replica.replica_id, None) is not None:
            self.destroyed += 1

    async def usage(self, replica: base.Replica, *, deep: bool = True) -> base.Usage:
        if (slow := self.slow_to_measure.get(replica.replica_id)) is not None:
            await slow.wait()
        overlay_mib = self.overlay_mib.get(replica.replica_id, 1.0)
        return base.Usage(self.pss_mib, self.pss_mib, 0.1, overlay_mib, 5)

    def can_pause(self, replica: base.Replica) -> bool:
        return self.pausable

    async def pause(self, replica: base.Replica) -> None:
        if not self.pausable:
            await super().pause(replica)
        self.paused.add(replica.replica_id)

    async def unpause(self, replica: base.Replica) -> None:
        self.paused.discard(replica.replica_id)

    def replicas(self) -> Sequence[base.Replica]:
        return list(self.alive.values())

    async def adopt(self, record: base.ReplicaRecord) -> base.Replica:
        raise base.ReplicaNotFound("none")

    async def reap(self, record: base.ReplicaRecord) -> None:
        return None

    def why_no_warm_clones(self) -> str | None:
        return self.why_no_templates()

    async def branch(self, replica: base.Replica, *, keep: bool = False) -> base.BranchPoint:
        if not self.branching:
            return await super().branch(replica, keep=keep)
        if self.fail_branches > 0:
            self.fail_branches -= 1
            raise base.PointFailed("the disk is full", replica_id=replica.replica_id)
        self._children = 0
        return self.points.add(replica, await self.state_of(replica), keep)

    async def state_of(self, replica: base.Replica) -> dict[str, Any]:
        """What a branch of it has."""
        assert isinstance(replica, FakeReplica)
        return replica.agent.state()

    async def release_point(self, point: base.BranchPoint) -> None:
        self.points.remove(point)

    async def export_point(self, point: base.BranchPoint, target: Path) -> None:
        if not point.kept:
            raise base.PointNotFound(point.point_id)
        text = json.dumps({"point": asdict(point), "state": self.points.state(point)})
        await asyncio.to_thread(target.write_text, text)

    async def import_point(self, source: Path) -> base.BranchPoint:
        try:
            entry = json.loads(await asyncio.to_thread(source.read_bytes))
            point = replace(base.BranchPoint(**entry["point"]), point_id="p" + secrets.token_hex(4))
        except (ValueError, TypeError, KeyError) as error:
            raise base.PointFailed(f"not a branch point: {error}") from error
        if point.image_digest != FakeImage().digest:
            raise base.PointFailed(f"it is of another golden snapshot: {point.image_digest[:20]}")
        self.points.put(point, entry["state"])
        return point

    async def stop(self) -> None:
        for replica in list(self.alive.values()):
            await self.destroy(replica)
        self.stopped = True

    def by_generation(self, generation: int) -> FakeReplica:
        """Finds a live replica."""
        return next(r for r in self.alive.values() if r.generation == generation)


@dataclass
class Service:
    """A host agent over fake replicas, and a client that calls its app."""

    agent: HostAgent
    runtime: FakeRuntime
    http: httpx.AsyncClient

    async def create(self, **body: Any) -> dict[str, Any]:
        """Creates an episode; returns the record's meta."""
        body.setdefault("request_id", f"q{time.monotonic_ns()}")
        answer = await self.http.post("/v1/episodes", json=body)
        assert answer.status_code == 200, answer.text
        return decode_record(answer.content).meta

    async def step(self, episode: dict[str, Any], seq: int, *actions: Any, **more: Any) -> httpx.Response:
        """Posts a step."""
        body = {"lease": episode["lease"], "seq": seq, "actions": list(actions), **more}
        return await self.http.post(f"/v1/episodes/{episode['episode_id']}/step", json=body)

    def guest_of(self, episode: dict[str, Any]) -> FakeReplica:
        """The fake replica behind an episode."""
        return self.runtime.by_generation(episode["generation"])


def record(answer: httpx.Response) -> Record:
    """The record of a successful answer."""
    assert answer.status_code == 200, answer.text
    return decode_record(answer.content)


def slow_task(service: Service) -> dict[str, Any]:
    """Return a task whose set-up hangs on every replica that is alive now."""
    for replica in service.runtime.alive.values():
        replica.agent.execute_gate.clear()
    return TASK


@contextlib.asynccontextmanager
async def running_service(
    tmp_path: Path,
    *,
    address: str = "127.0.0.1",
    branching: bool = True,
    more_images: Sequence[ImageRef] = (),
    **settings: Any,
) -> AsyncIterator[Service]:
    """Runs a host agent over fake replicas in this process; asserts that nothing is left of it."""
    settings.setdefault("trajectory", "frames")
    settings.setdefault("ram_reserve_mib", 0)
    settings.setdefault("replica_ram_mib", 64)
    settings.setdefault("disk_reserve_mib", 0)
    made = Settings(data_dir=tmp_path / "data", **settings)
    runtime = FakeRuntime(tmp_path / "r", branching=branching)
    agent = HostAgent(made, ImageRef(FakeImage(), "small"), runtime, more_images=more_images)
    await agent.start()
    transport = httpx.ASGITransport(agent.app(), client=(address, 1234), raise_app_exceptions=False)
    try:
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:20000") as http:
            yield Service(agent, runtime, http)
    finally:
        await agent.stop()
    assert not runtime.alive, "replicas are left"
    assert not list((tmp_path / "r").glob("*")), "files of replicas are left"
    assert runtime.stopped
    left = [p for p in runtime.points.states if not (runtime.points.folder / f"{p}.json").exists()]
    assert not left, "branch points are left"


TASK: dict[str, Any] = {
    "id": "say-yes",
    "instruction": "Say yes.",
    "config": [{"type": "execute", "parameters": {"command": ["prepare"]}}],
    "evaluator": {
        "func": "exact_match",
        "result": {"type": "vm_command_line", "command": ["answer"]},
        "expected": {"type": "rule", "rules": {"expected": "yes\n"}},
    },
}
"""A task whose set-up and check need no more than `/setup/execute`; a fake replica always earns 1."""


class Served:
    """A host agent over fake replicas behind a real HTTP server, in a thread of its own."""

    def __init__(self, tmp_path: Path, more_images: Sequence[ImageRef] = (), **settings: Any) -> None:
        self._more_images = more_images
        self.urls: list[str] = []
        self.agent: HostAgent | None = None
        self._settings = Settings(
            **{
                "data_dir": tmp_path / "data",
                "ports": [0],
                "ram_reserve_mib": 0,
                "replica_ram_mib": 64,
                "disk_reserve_mib": 0,
                **settings,
            }
        )
        self._tmp_path = tmp_path
        self._up = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Served:
        self._thread.start()
        assert self._up.wait(20)
        if self._failure is not None:
            raise self._failure
        return self

    def __exit__(self, *_: object) -> None:
        self.server.should_exit = True
        self._thread.join(30)
        assert not self._thread.is_alive()
        if self._failure is not None:
            raise self._failure
        assert not list((self._tmp_path / "r").glob("*")), "files of replicas are left"

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except BaseException as error:  # noqa: BLE001  # raised again in the test's thread
            self._failure = error
        finally:
            self._up.set()

    async def _serve(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.runtime = FakeRuntime(self._tmp_path / "r")
        small = ImageRef(FakeImage(), "small")
        self.agent = HostAgent(self._settings, small, self.runtime, more_images=self._more_images)
        sockets = bind(self._settings)
        self.urls = urls(self._settings, sockets)
        agent = self.agent
        self.server = HostServer(agent.app(), self._settings, agent.begin_stop, agent.end_episodes)
        await self.agent.start()
        self._up.set()
        try:
            await self.server.serve(sockets=sockets)
        finally:
            await self.agent.stop()
