"""Serves the fleet's dashboard until a signal ends it."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from pathlib import Path

import uvicorn

from osgym_cli.fleet_dashboard.app import make_app
from osgym_cli.fleet_dashboard.watch import FleetWatch
from osgym_sdk import AsyncClient

GRACE_S = 3
KEEP_ALIVE_S = 75
"""Idle time of a connection, as of a host agent: a browser that reuses one does not find it closed."""


def is_loopback(address: str) -> bool:
    """Return whether a socket bound to the address is reached from this machine only."""
    found = socket.getaddrinfo(address, None, type=socket.SOCK_STREAM)
    return all(one[4][0] == "::1" or str(one[4][0]).startswith("127.") for one in found)


def serve(
    hosts: str | Path,
    *,
    address: str,
    port: int,
    token: str | None,
    read_only: bool,
    ready: Callable[[str], None],
) -> None:
    """Serve the dashboard; returns after SIGINT or SIGTERM, which are raised again.

    Args:
        hosts: URLs of hosts, separated by commas, or what `Client.from_fleet` takes.
        ready: Called with the page's URL once it can be opened.

    Raises:
        ConfigError: The hosts cannot be read or used.
        OSError: The port is taken or may not be used.
    """
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind((address, port))
        sock.listen(128)
        asyncio.run(_serve(sock, hosts, token, read_only, ready))


async def _serve(
    sock: socket.socket, hosts: str | Path, token: str | None, read_only: bool, ready: Callable[[str], None]
) -> None:
    async with _client(hosts) as client:
        watch = FleetWatch(client)
        app = make_app(client, watch, token=token, read_only=read_only)
        config = uvicorn.Config(
            app, log_config=None, access_log=False, server_header=False, lifespan="off", ws="none",
            proxy_headers=False, timeout_graceful_shutdown=GRACE_S, timeout_keep_alive=KEEP_ALIVE_S,
        )  # fmt: skip
        name, port = sock.getsockname()[:2]
        ready(f"http://[{name}]:{port}/ui" if ":" in name else f"http://{name}:{port}/ui")
        watch.start()
        try:
            await uvicorn.Server(config).serve(sockets=[sock])
        finally:
            await watch.close()


def _client(hosts: str | Path) -> AsyncClient:
    if isinstance(hosts, str) and hosts.startswith(("http://", "https://")):
        return AsyncClient(hosts)
    return AsyncClient.from_fleet(hosts)
