"""A runtime for tests of the service: replicas are small HTTP servers on real unix sockets.

They speak the guest protocol (sequence numbers, records, errors) and can be told to die, hang, talk
nonsense or start anew, but have no desktop. What needs one is tested against the local runtime.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import shutil
import threading
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
from PIL import Image

from osgym_host.app import HostAgent, ImageRef
from osgym_host.runtimes import base
from osgym_host.server import HostServer, bind, urls
from osgym_host.settings import Settings
from osgym_sdk.wire import Record, decode_record, encode_record


def _png() -> bytes:
    out = io.BytesIO()
    Image.new("RGB", (1920, 1080), (30, 60, 90)).save(out, "PNG")
    return out.getvalue()


PNG = _png()


@dataclass(frozen=True)
class StandInManifest:
    """What a runtime reads of a manifest."""

    uid_base: int = 100000
    gid_base: int = 100000


@dataclass(frozen=True)
class StandInImage:
    """An image that nothing is cloned from."""

    digest: str = "0" * 64
    rootfs: Path = Path("/nonexistent")
    manifest: StandInManifest = StandInManifest()


class GuestAnswer(Exception):
    """An error answer of the guest."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status, self.code, self.message = status, code, message


@dataclass
class Guest:
    """The guest agent of one replica: what it did, and how it misbehaves."""

    replica_id: str
    generation: int
    acted: list[dict[str, Any]] = field(default_factory=list)
    commands: list[Any] = field(default_factory=list)
    files: dict[str, bytes] = field(default_factory=dict)
    released: int = 0
    last_seq: int = 0
    stored: tuple[dict[str, Any], bytes] | None = None
    started_at: float = field(default_factory=time.monotonic)
    ready: asyncio.Event = field(default_factory=asyncio.Event)
    step_gate: asyncio.Event = field(default_factory=asyncio.Event)
    execute_gate: asyncio.Event = field(default_factory=asyncio.Event)
    nonsense: bool = False
    refuse_steps_with: str = ""
    drop_next_answer: bool = False
    steps_begun: int = 0

    def __post_init__(self) -> None:
        self.ready.set()
        self.step_gate.set()
        self.execute_gate.set()

    def restart(self) -> None:
        """The agent alone dies and comes back: it has forgotten its numbers."""
        self.last_seq, self.stored, self.started_at = 0, None, time.monotonic()

    async def answer(self, path: str, body: bytes) -> tuple[str, bytes]:
        """Returns content type and body."""
        if path in ("/v1/health", "/v1/ready"):
            await self.ready.wait()
            return "application/json", json.dumps(self.health()).encode()
        if path == "/setup/execute":
            command = json.loads(body)["command"]
            self.commands.append(command)
            await self.execute_gate.wait()
            if command == ["fail"]:
                raise GuestAnswer(500, "error", "the command cannot be run")
            text = json.dumps({"status": "success", "output": "yes\n", "error": "", "returncode": 0})
            return "application/json", text.encode()
        if path == "/v1/release":
            self.released += 1
            return "application/json", b"{}"
        if self.nonsense:
            return "application/json", b"what?"
        request = json.loads(body)
        if path == "/v1/step":
            meta, blob = await self.step(request)
        elif path == "/v1/observe":
            meta, blob = self.frame(self.last_seq, request.get("observe")), PNG
        elif path == "/v1/final":
            if request["seq"] != self.last_seq:
                raise GuestAnswer(409, "bad_sequence", "not the last step")
            meta, blob = {**self.frame(self.last_seq, None), "final": True}, PNG
        else:
            raise GuestAnswer(404, "not_found", path)
        return "application/x-osgym-records", encode_record(meta, blob)

    def health(self) -> dict[str, Any]:
        return {
            "status": "ok",
            "version": "0",
            "generation": str(self.generation),
            "uptime_s": time.monotonic() - self.started_at,
            "desktop_ready": True,
            "last_seq": self.last_seq,
        }

    async def step(self, request: dict[str, Any]) -> tuple[dict[str, Any], bytes]:
        seq = request["seq"]
        if seq == self.last_seq and self.stored is not None:
            meta, blob = self.stored
            return {**meta, "replayed": True}, blob
        if seq != self.last_seq + 1:
            raise GuestAnswer(409, "bad_sequence", f"{seq} after {self.last_seq}")
        if self.refuse_steps_with:
            raise GuestAnswer(400, "invalid_action", self.refuse_steps_with)
        for action in request["actions"]:
            if action.get("x", 0) >= 1920:
                raise GuestAnswer(400, "invalid_action", "x is outside of the screen")
        self.steps_begun += 1
        await self.step_gate.wait()
        self.acted.extend(request["actions"])
        self.last_seq = seq
        meta = self.frame(seq, request.get("observe"))
        meta["results"] = [{"ok": True, "op": a["op"]} for a in request["actions"]]
        meta["settle"] = {"policy": "exact", "reason": "quiet", "wait_ms": 1.0, "last_change_ms": None}
        self.stored = (meta, PNG)
        return meta, PNG

    def frame(self, seq: int, observe: Any) -> dict[str, Any]:
        return {
            "seq": seq,
            "replayed": False,
            "results": [],
            "failed_index": None,
            "settle": None,
            "frame": {
                "hash": "h",
                "format": "png",
                "width": 1920,
                "height": 1080,
                "screen": [1920, 1080],
                "unchanged": False,
                "t_ms": 1.0,
            },
            "previous": None,
            "timing_ms": {"total": 1.0},
        }


class StandIn(base.Replica):
    """One replica."""

    def __init__(self, spec: base.ReplicaSpec, folder: Path) -> None:
        self._spec = spec
        self.folder = folder
        self._exit: base.ExitInfo | None = None
        self._dead = asyncio.Event()
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self.agent = Guest(spec.replica_id, spec.generation)

    replica_id = property(lambda self: self._spec.replica_id)  # type: ignore[assignment]  # terse on purpose
    generation = property(lambda self: self._spec.generation)  # type: ignore[assignment]  # terse on purpose
    spec = property(lambda self: self._spec)  # type: ignore[assignment]  # terse on purpose
    pid = property(lambda self: 1)  # type: ignore[assignment]  # terse on purpose
    exit_info = property(lambda self: self._exit)  # type: ignore[assignment]  # terse on purpose

    @property
    def guest(self) -> base.GuestAddress:
        return base.UnixAddress(self.folder / "agent.sock")

    async def start(self) -> None:
        self.folder.mkdir(parents=True)
        path = self.folder / "agent.sock"
        self._server = await asyncio.start_unix_server(self._serve, path, start_serving=False)
        await self._server.start_serving()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                path = head.split(b" ", 2)[1].decode()
                length = 0
                for line in head.split(b"\r\n"):
                    name, _, value = line.partition(b":")
                    if name.lower() == b"content-length":
                        length = int(value)
                body = await reader.readexactly(length)
                await self._reply(writer, path, body)
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass
        finally:
            self._writers.discard(writer)
            writer.close()

    async def _reply(self, writer: asyncio.StreamWriter, path: str, body: bytes) -> None:
        status = 200
        try:
            kind, answer = await self.agent.answer(path, body)
        except GuestAnswer as error:
            status, kind = error.status, "application/json"
            answer = json.dumps({"code": error.code, "message": error.message, "details": {}}).encode()
        if self.agent.drop_next_answer and path == "/v1/step":
            self.agent.drop_next_answer = False
            raise ConnectionResetError
        head = f"HTTP/1.1 {status} X\r\nContent-Type: {kind}\r\nContent-Length: {len(answer)}\r\n\r\n"
        writer.write(head.encode() + answer)
        await writer.drain()

    def die(self, reason: base.ExitReason = base.ExitReason.KILLED) -> None:
        """Ends it as if all its processes were killed."""
        if self._exit is not None:
            return
        self._exit = base.ExitInfo(reason, "for the test")
        if self._server is not None:
            self._server.close()
        for writer in list(self._writers):
            writer.transport.abort()
        self._dead.set()

    async def wait_dead(self) -> base.ExitInfo:
        await self._dead.wait()
        assert self._exit is not None
        return self._exit

    def console_tail(self, max_bytes: int = 8192) -> str:
        return ""


class StandInRuntime(base.Runtime):
    """Makes stand-ins; can be told to fail or to take its time."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.alive: dict[str, StandIn] = {}
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
        self.stopped = False

    @property
    def name(self) -> str:
        return "stand-in"

    def capabilities(self) -> base.Capabilities:
        return base.Capabilities("stand-in", False, False, False, frozenset({base.Egress.NONE}), False)

    async def start(self) -> base.StartReport:
        return base.StartReport()

    async def create(self, spec: base.ReplicaSpec) -> base.Replica:
        self.created += 1
        await self.create_gate.wait()
        if self.fail_creates > 0:
            self.fail_creates -= 1
            raise base.ReplicaCreateFailed("no room", step="mount", replica_id=spec.replica_id)
        replica = StandIn(spec, self.folder / spec.replica_id)
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
        assert isinstance(replica, StandIn)
        replica.die(base.ExitReason.DESTROYED)
        shutil.rmtree(replica.folder, ignore_errors=True)
        if self.alive.pop(replica.replica_id, None) is not None:
            self.destroyed += 1

    async def usage(self, replica: base.Replica, *, deep: bool = True) -> base.Usage:
        overlay_mib = self.overlay_mib.get(replica.replica_id, 1.0)
        return base.Usage(self.pss_mib, self.pss_mib, 0.1, overlay_mib, 5)

    def replicas(self) -> Sequence[base.Replica]:
        return list(self.alive.values())

    async def adopt(self, record: base.ReplicaRecord) -> base.Replica:
        raise base.ReplicaNotFound("none")

    async def reap(self, record: base.ReplicaRecord) -> None:
        return None

    async def stop(self) -> None:
        for replica in list(self.alive.values()):
            await self.destroy(replica)
        self.stopped = True

    def by_generation(self, generation: int) -> StandIn:
        """Finds a live replica."""
        return next(r for r in self.alive.values() if r.generation == generation)


@dataclass
class Service:
    """A host agent over stand-ins, and a client that calls its app."""

    agent: HostAgent
    runtime: StandInRuntime
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

    def guest_of(self, episode: dict[str, Any]) -> StandIn:
        """The stand-in behind an episode."""
        return self.runtime.by_generation(episode["generation"])


def record(answer: httpx.Response) -> Record:
    """The record of a successful answer."""
    assert answer.status_code == 200, answer.text
    return decode_record(answer.content)


async def until(condition: Any, timeout_s: float = 5.0) -> None:
    """Waits until `condition()` is true."""
    async with asyncio.timeout(timeout_s):
        while not condition():  # noqa: ASYNC110  # polls any condition
            await asyncio.sleep(0.005)


@contextlib.asynccontextmanager
async def running_service(
    tmp_path: Path, *, address: str = "127.0.0.1", **settings: Any
) -> AsyncIterator[Service]:
    """Runs a host agent over stand-ins in this process; asserts that nothing is left of it."""
    settings.setdefault("trajectory", "frames")
    settings.setdefault("ram_reserve_mib", 0)
    settings.setdefault("replica_ram_mib", 64)
    settings.setdefault("disk_reserve_mib", 0)
    made = Settings(data_dir=tmp_path / "data", **settings)
    runtime = StandInRuntime(tmp_path / "r")
    agent = HostAgent(made, ImageRef(StandInImage(), "small"), runtime)
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
"""A task whose set-up and check need no more than `/setup/execute`; a stand-in always earns 1."""


class Served:
    """A host agent over stand-ins behind a real HTTP server, in a thread of its own."""

    def __init__(self, tmp_path: Path, **settings: Any) -> None:
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
        self.runtime = StandInRuntime(self._tmp_path / "r")
        self.agent = HostAgent(self._settings, ImageRef(StandInImage(), "small"), self.runtime)
        sockets = bind(self._settings)
        self.urls = urls(self._settings, sockets)
        self.server = HostServer(self.agent.app(), self._settings, self.agent.begin_stop)
        await self.agent.start()
        self._up.set()
        try:
            await self.server.serve(sockets=sockets)
        finally:
            await self.agent.stop()
