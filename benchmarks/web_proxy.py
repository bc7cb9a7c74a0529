"""Cost of the replicas' proxy, and the load that a replayed site carries.

Replicas with and without it are made in turn, from a small probe image; steps are those of two desktops of a
golden image, in turns. A replay is asked by clients of another process on the same machine, each with the
socket of a replica of its own: they connect, agree on TLS and read ten pages over the connection. Both share
the cores, so what counts is the CPU time of the proxy for a request; the rate is what was left to it.

python -m benchmarks.web_proxy --pairs 20 --replicas 1000 --clients 64 --seconds 20 --steps 100 --image small
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import socket
import ssl
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.common import argument_parser, local_service, machine, save, summary
from osgym_host.runtimes.base import Egress, ReplicaSpec
from osgym_host.runtimes.local.probe_image import build_probe_image
from osgym_host.runtimes.local.runtime import LocalRuntime
from osgym_host.runtimes.processes import cpu_s, pss_mib
from osgym_host.runtimes.web import har
from osgym_host.runtimes.web.archive import Archive, Recording, open_archive
from osgym_host.runtimes.web.certificates import make_authority
from osgym_host.runtimes.web.client import ReplicaProxy
from osgym_host.runtimes.web.options import ProxyOptions, WebMode
from osgym_sdk import Client

POLICIES = (Egress.NONE, Egress.OPEN)
SITES, PAGES, PAGE_BYTES = 20, 10, 20_000
_SESSION = "#!/bin/sh\nexec /bin/sleep 3600\n"


async def cost_of_proxy(folder: Path, pairs: int) -> dict[str, Any]:
    """Make and destroy replicas; return raw series by policy."""
    image = build_probe_image(folder / "image", _SESSION, programs=[Path("/bin/sh"), Path("/bin/sleep")])
    proxy = ReplicaProxy(ProxyOptions(Egress.OPEN))
    runtime = LocalRuntime(folder, "bench", proxy=proxy)
    began = time.monotonic()
    await proxy.start()
    found: dict[str, Any] = {"proxy_start_ms": (time.monotonic() - began) * 1000}
    await runtime.start()
    found["proxy_idle_mib"] = pss_mib([proxy.pid])
    found |= {f"{what}_{egress}": [] for what in ("create_ms", "destroy_ms") for egress in POLICIES}
    try:
        for number, egress in itertools.product(range(pairs + 1), POLICIES):
            began = time.monotonic()
            replica = await runtime.create(ReplicaSpec(f"{egress}{number}", 1, image, egress=egress))
            made = time.monotonic()
            await runtime.destroy(replica)
            if number:  # the first ones load what is not loaded yet
                found[f"create_ms_{egress}"].append((made - began) * 1000)
                found[f"destroy_ms_{egress}"].append((time.monotonic() - made) * 1000)
    finally:
        await runtime.stop()
    return found


def steps(image: str, count: int) -> dict[str, list[float]]:
    """Return milliseconds of steps that move the mouse: with and without the proxy, in turns."""
    ways: dict[str, dict[str, Any]] = {"none": {}, "open": {"egress": "open", "egress_by": "proxy"}}
    found: dict[str, list[float]] = {f"step_ms_{way}": [] for way in ways}
    with contextlib.ExitStack() as stack:
        episodes = {}
        for way, settings in ways.items():
            given = {"warm": 1, "max_replicas": 1, "instance": f"bench-{way}-{os.getpid()}", **settings}
            url, _ = stack.enter_context(local_service(image, given))
            client = stack.enter_context(Client(url))
            episodes[way] = stack.enter_context(client.episode())
        for number, way in itertools.product(range(count + 5), ways):
            began = time.monotonic()
            episodes[way].step([{"op": "move", "x": 100 + number, "y": 200}])
            if number >= 5:
                found[f"step_ms_{way}"].append((time.monotonic() - began) * 1000)
    return found


def urls() -> list[tuple[str, str]]:
    """Return host and path of each recorded page."""
    return [(f"site{site}.example.org", f"/page/{page}") for site in range(SITES) for page in range(PAGES)]


async def cost_of_replay(folder: Path, replicas: int, clients: int, seconds: float) -> dict[str, Any]:
    """Serve an archive to the replicas' sockets; return rates, CPU time and memory."""
    archive = folder / "sites.har"
    recording = Recording(open_archive(archive, to_record=True), Archive())
    answer = har.Answer(200, ((b"content-type", b"text/html"),), os.urandom(PAGE_BYTES // 2).hex().encode())
    for host, path in urls():
        recording.add(har.write_entry(f"https://{host}{path}", (), answer, "2030-01-01T00:00:00Z", 1.0))
    recording.close()
    authority = make_authority()
    proxy = ReplicaProxy(ProxyOptions(Egress.NONE, mode=WebMode.REPLAY, archive=archive, authority=authority))
    await proxy.start()
    found: dict[str, Any] = {"replay_idle_mib": pss_mib([proxy.pid])}
    try:
        ports = []
        for number in range(replicas):
            listener = socket.create_server(("127.0.0.1", 0), backlog=64)
            ports.append(listener.getsockname()[1])
            await proxy.open(f"r{number}", listener)
        found["replay_mib_with_replicas"] = pss_mib([proxy.pid])
        told = json.dumps([ports, authority.certificate, clients, seconds])
        argv = [sys.executable, "-m", "benchmarks.web_proxy", "--as-clients"]
        before, began = cpu_s([proxy.pid]), time.monotonic()
        process = await asyncio.create_subprocess_exec(*argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        out, _ = await process.communicate(told.encode())
        used = cpu_s([proxy.pid]) - before
        counted = json.loads(out)
        found |= {f"replay_{name}": value for name, value in counted.items()}
        found["replay_requests_per_s"] = counted["requests"] / seconds
        found["replay_cpu_ms_per_request"] = 1000 * used / counted["requests"]
        found["replay_cpu_share"] = used / (time.monotonic() - began)
        found["replay_mib_after_load"] = pss_mib([proxy.pid])
    finally:
        await proxy.stop()
    return found


async def _visit(port: int, host: str, paths: list[str], context: ssl.SSLContext) -> list[float]:
    """Read pages over one connection of a browser; return milliseconds, the first with TLS."""
    took = []
    began = time.monotonic()
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(f"CONNECT {host}:443 HTTP/1.1\r\n\r\n".encode())
        await reader.readuntil(b"\r\n\r\n")
        await writer.start_tls(context, server_hostname=host)
        for path in paths:
            writer.write(f"GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
            head = await reader.readuntil(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 200 "), head
            await reader.readexactly(PAGE_BYTES)
            took.append((time.monotonic() - began) * 1000)
            began = time.monotonic()
    finally:
        writer.transport.abort()
    return took


async def _clients(ports: list[int], certificate: str, clients: int, seconds: float) -> dict[str, Any]:
    context = ssl.create_default_context(cadata=certificate)
    turns = zip(itertools.cycle(ports), itertools.cycle(range(SITES)), strict=False)
    first_ms: list[float] = []
    next_ms: list[float] = []
    end = time.monotonic() + seconds

    async def browse() -> None:
        while time.monotonic() < end:
            port, site = next(turns)
            paths = [f"/page/{page}" for page in range(PAGES)]
            first, *others = await _visit(port, f"site{site}.example.org", paths, context)
            first_ms.append(first)
            next_ms.extend(others)

    await asyncio.gather(*(browse() for _ in range(clients)))
    return {"requests": len(first_ms) + len(next_ms), "first_ms": first_ms, "next_ms": next_ms[::10]}


def main() -> None:
    if sys.argv[1:] == ["--as-clients"]:
        print(json.dumps(asyncio.run(_clients(*json.load(sys.stdin)))))
        return
    parser = argument_parser(__doc__, image="small")
    parser.add_argument(
        "--pairs", type=int, default=20, help="replicas made one by one, with and without (20)"
    )
    parser.add_argument("--replicas", type=int, default=1000, help="sockets of replicas in a replay (1000)")
    parser.add_argument("--clients", type=int, default=64, help="clients of a replay at once (64)")
    parser.add_argument("--seconds", type=float, default=20.0, help="how long they ask (20)")
    parser.add_argument("--steps", type=int, default=100, help="steps with and without (100); 0: none")
    args = parser.parse_args()
    load_before = os.getloadavg()
    with tempfile.TemporaryDirectory(prefix="web-proxy-") as folder:
        series = asyncio.run(cost_of_proxy(Path(folder), args.pairs))
    with tempfile.TemporaryDirectory(prefix="web-proxy-") as folder:
        series |= asyncio.run(cost_of_replay(Path(folder), args.replicas, args.clients, args.seconds))
    if args.steps:
        series |= steps(args.image, args.steps)
    print(machine())
    for name, values in series.items():
        print(name, summary(values) if isinstance(values, list) else values)
    settings = {
        name: getattr(args, name) for name in ("pairs", "replicas", "clients", "seconds", "steps", "image")
    }
    result = {"machine": machine(), "load_before": load_before, "settings": settings, **series}
    print(f"saved {save('web_proxy', result, args.out)}")


if __name__ == "__main__":
    main()
