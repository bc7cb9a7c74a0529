"""A guest agent's endpoints of OSWorld, served by its own server without a desktop."""

# ruff: noqa: ASYNC240 -- reading /proc and small files in the only task of a test blocks nobody

from __future__ import annotations

import asyncio
import json
import os
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from osgym_guest import osworld
from osgym_guest.http import Router
from osgym_guest.osworld.session import DesktopSession
from osgym_guest.server import Server

PNG = b"\x89PNG\r\n\x1a\n...."


class StillDesktop:
    """A desktop whose screen, size and pointer are given; the real one has tests of its own."""

    async def screenshot_png(self) -> bytes:
        return PNG

    def screen_size(self) -> tuple[int, int]:
        return 1920, 1080

    async def cursor_position(self) -> tuple[int, int]:
        return 12, 34


@dataclass
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


Call = Callable[..., Awaitable[Answer]]


async def http(path: Path, method: str, target: str, body: bytes, content_type: str) -> Answer:
    """One request over the unix socket."""
    reader, writer = await asyncio.open_unix_connection(str(path))
    head = f"{method} {target} HTTP/1.1\r\nHost: x\r\nContent-Type: {content_type}\r\n"
    writer.write(f"{head}Content-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode() + body)
    answer = await asyncio.wait_for(reader.read(), 30)
    writer.close()
    head_text, _, payload = answer.partition(b"\r\n\r\n")
    lines = head_text.decode("latin-1").split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines[1:])}
    return Answer(int(lines[0].split()[1]), headers, payload)


@asynccontextmanager
async def served_endpoints(tmp_path: Path, home: Path) -> AsyncIterator[Call]:
    """Serve the endpoints to a function: ``await call("/execute", {"command": …})``."""
    (home / "Desktop").mkdir(parents=True)
    before = set(children())  # of other tests: hosts that a whole session shares
    env = {"HOME": str(home), "PATH": "/usr/local/bin:/usr/bin:/bin", "DISPLAY": ":47123", "WHERE": "here"}
    router = Router()
    context = osworld.register(router, StillDesktop(), DesktopSession(env, home))
    server = Server(router)
    path = tmp_path / "agent.sock"
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(path))
    server.listen(listener)

    async def call(
        target: str,
        body: Any = None,
        *,
        form: str | None = None,
        method: str = "POST",
        kind: str = "application/json",
    ) -> Answer:
        if form is not None:
            body, kind = form.encode(), "application/x-www-form-urlencoded"
        raw = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
        return await http(path, method, target, raw, kind)

    yield call
    await server.close()
    await context.close()
    for _ in range(250):  # what was launched has ended in each test; its end is yet to be noticed
        if not set(children()) - before:
            break
        await asyncio.sleep(0.02)


def children() -> list[str]:
    """Process ids of this process's children, zombies among them."""
    return Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()


async def vanished(pid: int) -> bool:
    """Wait until a process is gone (one that only waits for its new parent counts as gone)."""
    for _ in range(250):
        try:
            if " Z " in Path(f"/proc/{pid}/stat").read_text():
                return True
        except OSError:
            return True
        await asyncio.sleep(0.02)
    return False
