"""Step cost above a floor: three processes on this machine that only pass bytes on.

    python -m benchmarks.step_floor --image small

A step goes from the client over TCP to the host and over a unix socket to the guest, and back. The rungs send
the same number of bytes the same way, each with more of what a step needs, in turns within one run:

    sockets   blocking sockets, a process each
    asyncio   streams of asyncio
    http      our HTTP client in each, uvicorn without routes in the host, the guest's own server
    step      a whole step (a pointer's move under `fast`), less the waiting for the screen
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import dataclasses
import multiprocessing
import socket
import statistics
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import httpx
import uvicorn

from benchmarks.common import argument_parser, local_service, machine, quantile, save
from osgym_guest.http import Request, Response, Router
from osgym_guest.server import Server
from osgym_host.addresses import UnixAddress
from osgym_host.guest_client.http import HttpClient
from osgym_sdk import AsyncClient, AsyncEpisode
from osgym_sdk._transport.http1 import Http1Connection

REQUEST_BYTES = 300
"""Approximate size of a step's request, head and body."""
SMALL_BYTES = 700
"""Approximate size of a step's answer without an image."""
DEADLINE_S = 30.0

Ping = Callable[[], Any]


# Rung 1: blocking sockets ---------------------------------------------------------------------


def _read(sock: socket.socket, count: int) -> bytes:
    data = bytearray()
    while len(data) < count:
        if not (part := sock.recv(count - len(data))):
            raise EOFError("the other side closed the connection")
        data += part
    return bytes(data)


def sockets_guest(path: str, size: int, ready: Connection) -> None:
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen()
    ready.send(0)
    caller, _ = listener.accept()
    answer = bytes(size)
    with contextlib.suppress(EOFError):
        while _read(caller, REQUEST_BYTES):
            caller.sendall(answer)


def sockets_host(path: str, size: int, ready: Connection) -> None:
    guest = socket.socket(socket.AF_UNIX)
    guest.connect(path)
    listener = socket.create_server(("127.0.0.1", 0))
    ready.send(listener.getsockname()[1])
    caller, _ = listener.accept()
    caller.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    with contextlib.suppress(EOFError):
        while request := _read(caller, REQUEST_BYTES):
            guest.sendall(request)
            caller.sendall(_read(guest, size))


@contextlib.asynccontextmanager
async def sockets_client(port: int, size: int) -> AsyncIterator[Ping]:
    with socket.create_connection(("127.0.0.1", port), DEADLINE_S) as sock:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

        def ping() -> None:
            sock.sendall(bytes(REQUEST_BYTES))
            _read(sock, size)

        yield ping


# Rung 2: asyncio ------------------------------------------------------------------------------


def asyncio_guest(path: str, size: int, ready: Connection) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError):
            while await reader.readexactly(REQUEST_BYTES):
                writer.write(bytes(size))

    async def serve() -> None:
        await asyncio.start_unix_server(answer, path)
        ready.send(0)
        await asyncio.Event().wait()

    asyncio.run(serve())


def asyncio_host(path: str, size: int, ready: Connection) -> None:
    async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        from_guest, to_guest = await asyncio.open_unix_connection(path, limit=size + 1)
        with contextlib.suppress(asyncio.IncompleteReadError):
            while request := await reader.readexactly(REQUEST_BYTES):
                to_guest.write(request)
                writer.write(await from_guest.readexactly(size))

    async def serve() -> None:
        server = await asyncio.start_server(relay, "127.0.0.1", 0)
        ready.send(server.sockets[0].getsockname()[1])
        await asyncio.Event().wait()

    asyncio.run(serve())


@contextlib.asynccontextmanager
async def asyncio_client(port: int, size: int) -> AsyncIterator[Ping]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=size + 1)

    async def ping() -> None:
        writer.write(bytes(REQUEST_BYTES))
        await reader.readexactly(size)

    yield ping
    writer.close()


# Rung 3: HTTP ---------------------------------------------------------------------------------


def http_guest(path: str, size: int, ready: Connection) -> None:
    """Answer every POST with `size` bytes through the guest agent's server."""
    body = bytes(size)

    def answer(request: Request) -> Response:
        return Response.data(body)

    async def serve() -> None:
        router = Router()
        router.add("POST", "/step", answer)
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(path)
        Server(router).listen(listener)
        ready.send(0)
        await asyncio.Event().wait()

    asyncio.run(serve())


def http_host(path: str, size: int, ready: Connection) -> None:
    """Pass requests and answers on: one ASGI function under uvicorn, our client of guests."""
    guest = HttpClient(UnixAddress(Path(path)))

    async def app(scope: Any, receive: Any, send: Any) -> None:
        message = await receive()
        answer = await guest.request("POST", "/step", message["body"], timeout_s=DEADLINE_S)
        headers = [(b"content-length", str(len(answer.body)).encode())]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": answer.body})

    config = uvicorn.Config(app, log_config=None, access_log=False, lifespan="off")
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.bind(("127.0.0.1", 0))
    listener.listen()
    ready.send(listener.getsockname()[1])
    asyncio.run(uvicorn.Server(config).serve([listener]))


@contextlib.asynccontextmanager
async def http_client(port: int, size: int) -> AsyncIterator[Ping]:
    async with httpx.AsyncClient(transport=Http1Connection(), timeout=DEADLINE_S) as client:

        async def ping() -> None:
            answer = await client.post(f"http://127.0.0.1:{port}/step", content=bytes(REQUEST_BYTES))
            assert len(answer.content) == size

        yield ping


RUNGS = {
    "sockets": (sockets_guest, sockets_host, sockets_client),
    "asyncio": (asyncio_guest, asyncio_host, asyncio_client),
    "http": (http_guest, http_host, http_client),
}


# Measuring ------------------------------------------------------------------------------------


@contextlib.contextmanager
def two_processes(rung: str, size: int) -> Iterator[int]:
    """Run a rung's guest and host; yield the host's port."""
    context = multiprocessing.get_context("spawn")
    guest, host, _ = RUNGS[rung]
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        port = 0
        for work in (guest, host):
            ours, theirs = context.Pipe()
            process = context.Process(target=work, args=(f"{folder}/guest", size, theirs), daemon=True)
            process.start()
            stack.callback(process.join)
            stack.callback(process.kill)
            if not ours.poll(DEADLINE_S):
                raise TimeoutError(f"{work.__name__} did not start within {DEADLINE_S} s")
            port = ours.recv()
        yield port


async def timed(ping: Ping) -> float:
    """Return the time of one round trip, in ms."""
    began = time.perf_counter()
    waiting = ping()
    if waiting is not None:
        await waiting
    return (time.perf_counter() - began) * 1000


async def one_step(episode: AsyncEpisode, number: int, image: str) -> tuple[float, dict[str, float], int]:
    """Do one step; return its time less the waiting for the screen, the parts of it, its image's bytes."""
    obs = await episode.step(f"move({100 + number % 50},200)", settle="fast", observe=image)
    assert obs.timing is not None
    parts = {f.name: round(getattr(obs.timing, f.name), 3) for f in dataclasses.fields(obs.timing)}
    return obs.timing.total_ms - obs.timing.settle_ms, parts, len(obs.data)


async def measure(url: str, image: str, size: int, options: argparse.Namespace) -> dict[str, Any]:
    """Measure every rung and whole steps, in turns of ten."""
    series: dict[str, list[float]] = {rung: [] for rung in (*RUNGS, "step")}
    parts: list[dict[str, float]] = []
    sizes: list[int] = []
    async with contextlib.AsyncExitStack() as stack:
        pings: dict[str, Ping] = {}
        for rung, (_, _, client) in RUNGS.items():
            port = stack.enter_context(two_processes(rung, size))
            pings[rung] = await stack.enter_async_context(client(port, size))
        sdk = await stack.enter_async_context(AsyncClient(url))
        episode = await stack.enter_async_context(sdk.episode(max_steps=100_000, reuse_frames=False))
        for number in range(-10, options.steps):  # the first ten warm up
            for rung, ping in pings.items():
                series[rung].append(await timed(ping))
            total, split, length = await one_step(episode, number, image)
            series["step"].append(total)
            parts.append(split)
            sizes.append(length)
    medians = {name: statistics.median(row[name] for row in parts[10:]) for name in parts[0]}
    return {
        "answer_bytes": size,
        "image_bytes": statistics.median(sizes[10:]),
        "step_parts_ms": {name: round(value, 3) for name, value in medians.items()},
        "series_ms": {rung: [round(ms, 3) for ms in values[10:]] for rung, values in series.items()},
    }


def report(name: str, result: dict[str, Any]) -> None:
    print(f"answer of {result['answer_bytes']} bytes (a step with {name}, {result['image_bytes']:.0f} bytes)")
    for rung, values in result["series_ms"].items():
        p50, p95 = statistics.median(values), quantile(values, 0.95)
        print(f"  {rung:8} p50 {p50:6.2f} ms  p95 {p95:6.2f} ms  n={len(values)}")
    split = "  ".join(f"{part.removesuffix('_ms')} {ms:.2f}" for part, ms in result["step_parts_ms"].items())
    print(f"  medians of the step's parts: {split}")


def main() -> None:
    parser = argument_parser(__doc__, image="small")
    parser.add_argument("--steps", type=int, default=300, help="round trips on each rung (300)")
    parser.add_argument("--png-bytes", type=int, default=60_000, help="of the rungs' answer with an image")
    options = parser.parse_args()
    results: dict[str, Any] = {}
    with local_service(options.image, {"warm": 1, "max_replicas": 2}) as (url, _):
        for name, size in (("none", SMALL_BYTES), ("png", options.png_bytes)):
            results[name] = asyncio.run(measure(url, name, size, options))
            report(name, results[name])
    found = {"machine": machine(), "image": options.image, "results": results}
    print(f"saved {save('step_floor', found, options.out)}")


if __name__ == "__main__":
    main()
