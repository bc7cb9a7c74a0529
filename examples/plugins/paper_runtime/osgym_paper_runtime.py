"""A runtime whose desktops are sheets of paper: each click leaves a dot, and nothing else happens.

It shows everything that a runtime must bring: a kind that makes it, replicas with an address, and something
that answers the guest protocol (docs/design/guest-protocol.md) at that address. `osgym host serve --runtime
paper` serves it.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import io
import json
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from PIL import Image, ImageDraw
from pydantic import Field

from osgym_host.addresses import GuestAddress, UnixAddress
from osgym_host.runtimes.base import ExitInfo, ExitReason, Replica, ReplicaSpec, Runtime
from osgym_host.runtimes.kind import ImageRef, RuntimeKind
from osgym_host.settings import RuntimeSettings, Settings
from osgym_protocol.records import encode_record

DOT_PX = 12


@dataclass(frozen=True)
class Paper:
    """What desktops are cloned from: paper of one colour."""

    colour: str

    @property
    def digest(self) -> str:
        """Digest of the colour."""
        return hashlib.sha256(self.colour.encode()).hexdigest()


class PaperSettings(RuntimeSettings):
    """Settings `paper.*`."""

    colour: str = Field(default="#fffbe6", pattern=r"^#[0-9a-f]{6}$", description="Colour of the paper.")


class PaperReplica(Replica):
    """One sheet of paper, and the server that stands for its guest agent."""

    def __init__(self, spec: ReplicaSpec, folder: Path) -> None:
        super().__init__(spec)
        assert isinstance(spec.image, Paper)
        self.folder = folder
        self._sheet = Image.new("RGB", (spec.screen.width_px, spec.screen.height_px), spec.image.colour)
        self._last_seq = 0
        self._last_answer = b""
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.StreamWriter] = set()

    @property
    def guest(self) -> GuestAddress:
        """Socket in the replica's folder."""
        return UnixAddress(self.folder / "agent.sock")

    async def start(self) -> None:
        """Listen at the address."""
        self.folder.mkdir(parents=True)
        self._server = await asyncio.start_unix_server(self._serve, self.folder / "agent.sock")

    def close(self) -> None:
        """Stop listening, cut all connections and remove the folder."""
        if self._server is not None:
            self._server.close()
        for connection in self._connections:
            connection.transport.abort()
        shutil.rmtree(self.folder, ignore_errors=True)
        self.mark_dead(ExitInfo(ExitReason.DESTROYED, "it was destroyed"))

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._connections.add(writer)
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
                path = head.split(" ", 2)[1]
                lengths = [line[15:] for line in head.split("\r\n") if line.startswith("content-length:")]
                body = await reader.readexactly(int(lengths[0]) if lengths else 0)
                status, kind, answer = self._answer(path, json.loads(body or b"{}"))
                lines = f"HTTP/1.1 {status} -", f"Content-Type: {kind}", f"Content-Length: {len(answer)}"
                writer.write("\r\n".join((*lines, "", "")).encode() + answer)
                await writer.drain()
        self._connections.discard(writer)
        writer.close()

    def _answer(self, path: str, request: dict[str, Any]) -> tuple[int, str, bytes]:
        if path in ("/v1/health", "/v1/ready"):
            health = {"status": "ok", "version": "0", "uptime_s": 1.0, "desktop_ready": True}
            health |= {"generation": str(self.generation), "last_seq": self._last_seq}
            return 200, "application/json", json.dumps(health).encode()
        if path == "/v1/release":
            return 200, "application/json", b"{}"
        if path == "/v1/step":
            return 200, "application/x-osgym-records", self._step(request)
        if path in ("/v1/observe", "/v1/final"):
            return 200, "application/x-osgym-records", self._observe(request, {})
        missing = {"code": "not_found", "message": f"paper has no {path}", "details": {}}
        return 404, "application/json", json.dumps(missing).encode()

    def _step(self, request: dict[str, Any]) -> bytes:
        """Act once for each number; a step that is sent again gets the same answer."""
        if request["seq"] != self._last_seq:
            self._last_seq = request["seq"]
            for action in request["actions"]:
                if "x" in action:
                    x, y = action["x"], action["y"]
                    dot = (x - DOT_PX, y - DOT_PX, x + DOT_PX, y + DOT_PX)
                    ImageDraw.Draw(self._sheet).ellipse(dot, fill="black")
            results = [{"ok": True, "op": action["op"]} for action in request["actions"]]
            policy = (request.get("settle") or {}).get("policy", "exact")
            settle = {"policy": policy, "reason": "quiet", "wait_ms": 0.0, "last_change_ms": None}
            self._last_answer = self._observe(request, {"results": results, "settle": settle})
        return self._last_answer

    def _observe(self, request: dict[str, Any], more: dict[str, Any]) -> bytes:
        asked = request.get("observe") or {}
        image_format = asked.get("format", "png")
        shown = self._sheet.resize(asked["size"]) if asked.get("size") else self._sheet
        content_hash = hashlib.sha256(shown.tobytes()).hexdigest()[:16]
        unchanged = asked.get("unless_hash") == content_hash
        out = io.BytesIO()
        if image_format != "none" and not unchanged:
            shown.save(out, image_format)
        frame = {"hash": content_hash, "format": image_format, "unchanged": unchanged, "t_ms": 1.0}
        frame |= {"width": shown.width, "height": shown.height, "screen": list(self._sheet.size)}
        meta = {"seq": self._last_seq, "replayed": False, "results": [], "failed_index": None, "settle": None}
        meta |= {"frame": frame, "previous": None, "timing_ms": {"total": 1.0}, "final": True, **more}
        return encode_record(meta, out.getvalue())


class PaperRuntime(Runtime):
    """Makes sheets of paper in this process; they end with it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._replicas: dict[str, PaperReplica] = {}

    @property
    def name(self) -> str:
        """`paper`."""
        return "paper"

    async def create(self, spec: ReplicaSpec) -> Replica:
        """Lay out a fresh sheet."""
        replica = PaperReplica(spec, self._folder / spec.replica_id)
        await replica.start()
        self._replicas[spec.replica_id] = replica
        return replica

    async def destroy(self, replica: Replica) -> None:
        """Throw it away."""
        found = self._replicas.pop(replica.replica_id, None)
        if found is not None:
            found.close()

    def replicas(self) -> Sequence[Replica]:
        """Return all sheets."""
        return list(self._replicas.values())


class PaperKind(RuntimeKind):
    """The runtime `paper`."""

    settings_model = PaperSettings

    def find_image(self, settings: Settings) -> ImageRef:
        """Take paper of the colour that the settings say."""
        return ImageRef(Paper(settings.of_runtime("paper", PaperSettings).colour), "paper")

    def make(self, settings: Settings, image: ImageRef | None) -> Runtime:
        """Make the runtime in the instance's own folder."""
        return PaperRuntime(settings.data_dir / "run" / settings.instance / "replicas")


KIND = PaperKind()
