"""The guest of a fake replica: the guest protocol over a unix socket, and no desktop.

Run as a program it is a replica that outlives its host agent, as a virtual machine does:
`python -m tests.support.fake_guest FOLDER REPLICA_ID GENERATION`, its first state as JSON on stdin.
"""

from __future__ import annotations

import asyncio
import functools
import io
import json
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from PIL import Image

from osgym_protocol.records import encode_record


@functools.cache
def _picture(image_format: str, width: int, height: int) -> bytes:
    out = io.BytesIO()
    Image.new("RGB", (width, height), (30, 60, 90)).save(out, image_format.upper())
    return out.getvalue()


SCREEN = (1920, 1080)
PNG = _picture("png", *SCREEN)


def image_of(meta: dict[str, Any]) -> bytes:
    """The image that goes with a meta: always the same picture, as it was asked for."""
    frame = meta["frame"]
    if frame["format"] == "none" or frame["unchanged"]:
        return b""
    return _picture(frame["format"], frame["width"], frame["height"])


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
    asked_ready: int = 0
    """Number of calls that have begun to wait until the guest is ready."""
    step_gate: asyncio.Event = field(default_factory=asyncio.Event)
    execute_gate: asyncio.Event = field(default_factory=asyncio.Event)
    nonsense: bool = False
    refuses: str = ""
    """The code with which it refuses every call of `refused_paths`."""
    refused_paths: frozenset[str] = frozenset({"/v1/step"})
    refuse_steps_with: str = ""
    drop_next_answer: bool = False
    reach: dict[str, Any] = field(default_factory=dict)
    """What calls past the screen give, by path without its query: bytes, or an answer to raise."""
    reached: list[tuple[str, bytes]] = field(default_factory=list)
    steps_begun: int = 0
    looks: int = 0
    restless: bool = False
    """Its screen never comes to rest."""
    held: bool = False
    """Its clocks stand still."""
    charges: list[float | None] = field(default_factory=list)
    """What each thought was charged that ended with the clocks going on again."""
    current: tuple[int, asyncio.Future[tuple[dict[str, Any], bytes]]] | None = None

    def __post_init__(self) -> None:
        self.ready.set()
        self.step_gate.set()
        self.execute_gate.set()

    def restart(self) -> None:
        """The agent alone dies and comes back: it has forgotten its numbers."""
        self.last_seq, self.stored, self.started_at = 0, None, time.monotonic()

    def state(self) -> dict[str, Any]:
        """What a clone of its RAM and disk would have too."""
        return {
            "acted": list(self.acted),
            "commands": list(self.commands),
            "files": {name: data.hex() for name, data in self.files.items()},
            "last_seq": self.last_seq,
            "stored": self.stored[0] if self.stored is not None else None,
            "uptime_s": time.monotonic() - self.started_at,
        }

    def take(self, state: dict[str, Any]) -> None:
        """Becomes what the other one was."""
        self.acted, self.commands = list(state["acted"]), list(state["commands"])
        self.files = {name: bytes.fromhex(data) for name, data in state["files"].items()}
        self.last_seq = state["last_seq"]
        self.stored = None if state["stored"] is None else (state["stored"], image_of(state["stored"]))
        self.started_at = time.monotonic() - state["uptime_s"]

    async def answer(self, path: str, body: bytes) -> tuple[str, bytes]:
        """Returns content type and body."""
        if path.partition("?")[0] in self.refused_paths and self.refuses:
            raise GuestAnswer(409, self.refuses, "as the test wants it")
        if path == "/test/state":
            return "application/json", json.dumps(self.state()).encode()
        if path == "/test/close-gate":
            self.step_gate.clear()
            return "application/json", b"{}"
        if path == "/test/open-gate":
            self.step_gate.set()
            return "application/json", b"{}"
        if path == "/test/hold-commands":
            self.execute_gate.clear()
            return "application/json", b"{}"
        if path == "/test/free-commands":
            self.execute_gate.set()
            return "application/json", b"{}"
        if path in ("/v1/health", "/v1/ready"):
            self.asked_ready += path == "/v1/ready"
            await self.ready.wait()
            return "application/json", b"what?" if self.nonsense else json.dumps(self.health()).encode()
        if path == "/setup/execute":
            command = json.loads(body)["command"]
            self.commands.append(command)
            await self.execute_gate.wait()
            if command == ["fail"]:
                raise GuestAnswer(500, "error", "the command cannot be run")
            failed = command[0] == "status"
            said = {"error": command[2], "returncode": int(command[1])} if failed else {}
            text = json.dumps({"status": "success", "output": "yes\n", "error": "", "returncode": 0, **said})
            return "application/json", text.encode()
        if path.startswith(("/v1/reach/", "/accessibility")):
            self.reached.append((path, body))
            await self.execute_gate.wait()
            given = self.reach.get(path.partition("?")[0], GuestAnswer(404, "not_found", path))
            if isinstance(given, GuestAnswer):
                raise given
            return "application/json", given
        if path == "/v1/clock/hold":
            self.held = True
            return "application/json", b"{}"
        if path == "/v1/clock/resume":
            charge_s = json.loads(body)["charge_s"]
            if self.held:
                self.charges.append(charge_s)
            self.held = False
            return "application/json", json.dumps({"left_s": charge_s or 0.0}).encode()
        if path == "/v1/release":
            self.released += 1
            return "application/json", b"{}"
        if self.nonsense:
            return "application/json", b"what?"
        request = json.loads(body)
        if path == "/v1/step":
            meta, blob = await self.step(request)
        elif path == "/v1/observe":
            self.looks += 1
            meta = self.frame(self.last_seq, request.get("observe"))
            blob = image_of(meta)
        elif path == "/v1/final":
            if request["seq"] != self.last_seq:
                raise GuestAnswer(409, "bad_sequence", "not the last step")
            self.held |= request.get("hold", False)
            meta = {**self.frame(self.last_seq, request.get("observe")), "final": True}
            blob = image_of(meta)
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
        if self.current is not None:
            if self.current[0] != seq:
                raise GuestAnswer(409, "busy", "another step is running")
            meta, blob = await asyncio.shield(self.current[1])
            return {**meta, "replayed": True}, blob
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
        task = asyncio.ensure_future(self._act(seq, request))
        self.current = (seq, task)
        try:
            return await asyncio.shield(task)
        finally:
            if task.done():
                self.current = None

    async def _act(self, seq: int, request: dict[str, Any]) -> tuple[dict[str, Any], bytes]:
        """Goes on when its caller is gone, as the real one does."""
        await self.step_gate.wait()
        self.current = None
        self.acted.extend(request["actions"])
        self.last_seq = seq
        self.held |= request.get("hold", False)
        meta = self.frame(seq, request.get("observe"))
        meta["results"] = [{"ok": True, "op": a["op"]} for a in request["actions"]]
        policy = (request.get("settle") or {}).get("policy", "exact")
        meta["settle"] = {"policy": policy, "reason": "quiet", "wait_ms": 1.0, "last_change_ms": None}
        if policy == "certain":
            meta["final"] = not self.restless
        self.stored = (meta, image_of(meta))
        return self.stored

    def frame(self, seq: int, observe: Any) -> dict[str, Any]:
        asked = observe or {}
        width, height = asked.get("size") or SCREEN
        return {
            "seq": seq,
            "replayed": False,
            "results": [],
            "failed_index": None,
            "settle": None,
            "frame": {
                "hash": "h",
                "format": asked.get("format", "png"),
                "width": width,
                "height": height,
                "screen": list(SCREEN),
                "unchanged": asked.get("unless_hash") == "h",
                "t_ms": 1.0,
            },
            "previous": None,
            "timing_ms": {"total": 1.0},
        }


class GuestServer:
    """Serves one guest on a unix socket."""

    def __init__(self, guest: Guest) -> None:
        self.guest = guest
        self.writers: set[asyncio.StreamWriter] = set()
        self._server: asyncio.Server | None = None

    async def start(self, path: Path) -> None:
        self._server = await asyncio.start_unix_server(self._serve, path, start_serving=False)
        await self._server.start_serving()

    def stop(self) -> None:
        """Cuts every connection."""
        if self._server is not None:
            self._server.close()
        for writer in list(self.writers):
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.writers.add(writer)
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
            self.writers.discard(writer)
            writer.close()

    async def _reply(self, writer: asyncio.StreamWriter, path: str, body: bytes) -> None:
        status = 200
        try:
            kind, answer = await self.guest.answer(path, body)
        except GuestAnswer as error:
            status, kind = error.status, "application/json"
            answer = json.dumps({"code": error.code, "message": error.message, "details": {}}).encode()
        if self.guest.drop_next_answer and path == "/v1/step":
            self.guest.drop_next_answer = False
            raise ConnectionResetError
        head = f"HTTP/1.1 {status} X\r\nContent-Type: {kind}\r\nContent-Length: {len(answer)}\r\n\r\n"
        writer.write(head.encode() + answer)
        await writer.drain()


async def _main(folder: Path, replica_id: str, generation: int) -> None:
    guest = Guest(replica_id, generation)
    text = sys.stdin.read()
    if text:
        guest.take(json.loads(text))
    await GuestServer(guest).start(folder / "agent.sock")
    (folder / "up").touch()
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(_main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])))
