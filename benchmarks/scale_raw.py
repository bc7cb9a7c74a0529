"""Clients for comparison: a bare one that only passes bytes, and a process for each environment.

`RawClient` drives the same hosts by the same requests (`POST /v1/steps`) with as little as Python can do:
text that is put together, bytes that are counted. It checks no answer, renews no lease and knows no error, so
what is served to it is what the servers and the machine allow. `requests_processes` is how OSGym's own data
server goes about it (agiopen-org/osgym, `examples/`), built anew: a process for each environment that calls
`/reset` and `/step` with `requests`.
"""

from __future__ import annotations

import asyncio
import base64
import multiprocessing
import struct
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import requests

_HEAD = struct.Struct(">II")


@dataclass(slots=True, eq=False)
class RawEpisode:
    """A lease, and the number of its last step."""

    host: str
    episode_id: str
    lease: str
    seq: int
    sent_s: float = 0.0


class RawClient:
    """Steps many episodes in one request per host; answers go to `ready` as they come."""

    def __init__(self, ready: Callable[[RawEpisode], None]) -> None:
        self._ready = ready
        self._idle: dict[str, deque[_RawConnection]] = {}
        self._all: list[_RawConnection] = []
        self.blob_bytes = 0

    async def step(self, episodes: list[RawEpisode]) -> None:
        groups: dict[str, list[RawEpisode]] = {}
        for episode in episodes:
            groups.setdefault(episode.host, []).append(episode)
        for host, group in groups.items():
            idle = self._idle.setdefault(host, deque())
            (idle.pop() if idle else await self._connect(host, idle)).send(group)

    def close(self) -> None:
        for connection in self._all:
            connection.transport.abort()

    async def _connect(self, host: str, idle: deque[_RawConnection]) -> _RawConnection:
        place = urlsplit(host)
        _, made = await asyncio.get_running_loop().create_connection(
            lambda: _RawConnection(place.netloc, idle, self), place.hostname or "", place.port or 80
        )
        self._all.append(made)
        return made

    def done(self, episode: RawEpisode, blob_bytes: int) -> None:
        self.blob_bytes += blob_bytes
        self._ready(episode)


class _RawConnection(asyncio.Protocol):
    """Connection with one request at a time, whose answer is a chunked stream of records."""

    transport: asyncio.Transport

    def __init__(self, netloc: str, idle: deque[_RawConnection], client: RawClient) -> None:
        self._start = f"POST /v1/steps HTTP/1.1\r\nhost: {netloc}\r\ncontent-type: application/json\r\n"
        self._idle, self._client = idle, client
        self._group: list[RawEpisode] = []
        self._buffer, self._records = bytearray(), bytearray()
        self._in_body = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def send(self, group: list[RawEpisode]) -> None:
        self._group = group
        now_s = time.monotonic()
        items = []
        for episode in group:
            episode.seq += 1
            episode.sent_s = now_s
            items.append(
                f'{{"episode_id":"{episode.episode_id}","lease":"{episode.lease}","seq":{episode.seq},'
                '"actions":[{"op":"click","x":100,"y":200}]}'
            )
        body = f'{{"steps":[{",".join(items)}]}}'
        self.transport.write(f"{self._start}content-length: {len(body)}\r\n\r\n{body}".encode())

    def data_received(self, data: bytes) -> None:
        buffer = self._buffer
        buffer += data
        if not self._in_body:
            end = buffer.find(b"\r\n\r\n")
            if end < 0:
                return
            if not buffer.startswith(b"HTTP/1.1 200"):
                raise RuntimeError(f"the host answered {bytes(buffer[:300])!r}")
            del buffer[: end + 4]
            self._in_body = True
        at = 0
        while (end := buffer.find(b"\r\n", at, at + 16)) >= 0:
            size = int(buffer[at:end], 16)
            if len(buffer) < end + size + 4:
                break
            self._records += memoryview(buffer)[end + 2 : end + 2 + size]
            at = end + size + 4
            self._take()
            if size == 0:
                self._in_body = False
                self._idle.append(self)
                break
        del buffer[:at]

    def _take(self) -> None:
        records = self._records
        while len(records) >= 8:
            meta, blob = _HEAD.unpack_from(records)
            if len(records) < 8 + meta + blob:
                return
            text = bytes(records[8 : 8 + meta])
            at = text.rindex(b'"index":') + 8
            end = at
            while text[end : end + 1].isdigit():
                end += 1
            del records[: 8 + meta + blob]
            self._client.done(self._group[int(text[at:end])], blob)


def _environment(pipe: Connection, url: str, task: dict[str, Any], seconds: float, kept: bool) -> None:
    """Run one environment in a process: report its desktop, step it for a while, report its books."""
    http: Any = requests.Session() if kept else requests
    answer = http.post(f"{url}/reset", json={"task_config": task, "timeout": 1000}, timeout=300)
    answer.raise_for_status()
    vm_id = answer.json()["vm_id"]
    pipe.send("ready")
    pipe.recv()
    steps, frame_bytes, cpu_s = 0, 0, time.process_time()
    end_s = time.monotonic() + seconds
    while time.monotonic() < end_s:
        body = {"action": "click(100,200)", "vm_id": vm_id}
        answer = http.post(f"{url}/step", json=body, timeout=300)
        answer.raise_for_status()
        frame_bytes += len(base64.b64decode(answer.json()["screenshot"]))
        steps += 1
    cpu_s = time.process_time() - cpu_s
    rollup = Path("/proc/self/smaps_rollup").read_text().splitlines()
    pss_mib = next(int(line.split()[1]) / 1024 for line in rollup if line.startswith("Pss:"))
    http.post(f"{url}/shutdown", json={"vm_id": vm_id}, timeout=60)
    pipe.send({"steps": steps, "cpu_s": cpu_s, "pss_mib": pss_mib, "frame_bytes": frame_bytes})


def requests_processes(
    urls: list[str], task: dict[str, Any], count: int, seconds: float, kept: bool
) -> dict[str, Any]:
    """Run environments, a process each, and return their results.

    Args:
        kept: Each keeps its connection (`requests.Session`); else it opens one for each call, as theirs.
    """
    context = multiprocessing.get_context("spawn")
    pipes, processes = [], []
    for number in range(count):
        ours, theirs = context.Pipe()
        process = context.Process(
            target=_environment, args=(theirs, urls[number % len(urls)], task, seconds, kept), daemon=True
        )
        process.start()
        theirs.close()
        pipes.append(ours)
        processes.append(process)
    for pipe in pipes:
        pipe.recv()
    for pipe in pipes:
        pipe.send("go")
    rows = [pipe.recv() for pipe in pipes]
    for process in processes:
        process.join(30)
    steps, cpu_s = sum(row["steps"] for row in rows), sum(row["cpu_s"] for row in rows)
    return {
        "connections": "kept" if kept else "one for each call",
        "environments": count,
        "steps": steps,
        "seconds": seconds,
        "steps_per_s": round(steps / seconds, 1),
        "cpu_ms_per_step": round(1000 * cpu_s / max(steps, 1), 4),
        "pss_mib_per_environment": round(sum(row["pss_mib"] for row in rows) / count, 1),
        "frame_bytes_per_step": round(sum(row["frame_bytes"] for row in rows) / max(steps, 1)),
    }
