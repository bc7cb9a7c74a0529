"""One uvicorn server for one app on several ports, with a bounded shutdown.

uvicorn parses with httptools where that is installed (it is a dependency of ours): a step over stand-in
replicas takes 0.77 of the CPU time and 0.83 of the wall time that it takes with h11 (2.42 to 1.86 ms CPU,
6.45 to 5.36 ms, median of 1000 steps, 2 runs each, interleaved). uvloop beside it took back a part (2.11 ms
CPU): our calls to guests use the loop's socket methods, which are not what it is fast at. So asyncio's own
loop stays.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
from collections.abc import Callable, Iterator, Sequence
from typing import cast

import uvicorn
from fastapi import FastAPI

from osgym_host.connections import ConnectionBounds, ConnectionTable, listen
from osgym_host.settings import Settings

BACKLOG = 2048
KEEP_ALIVE_S = 75
GRACE_S = 5
"""Time that calls in flight get when the service stops."""
TELL_S = 2
"""Part of that time for answering the others with the reason; cut off, they would be failures of the host."""


def bind(settings: Settings) -> list[socket.socket]:
    """Bind all ports before anything is started; connections wait until they are served.

    Raises:
        OSError: A port is taken or may not be used; nothing stays bound.
    """
    sockets: list[socket.socket] = []
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    try:
        for port in settings.ports:
            # With the protocol named, asyncio turns Nagle's algorithm off; else small answers, written
            # as head and body, wait 40 ms for the client's acknowledgement.
            sock = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
            sockets.append(sock)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                sock.bind((settings.host, port))
            except OSError as error:
                raise OSError(
                    error.errno, f"cannot listen on {settings.host}:{port}: {error.strerror}"
                ) from error
            sock.listen(BACKLOG)
            sock.setblocking(False)
            sock.set_inheritable(False)
    except OSError:
        for sock in sockets:
            sock.close()
        raise
    return sockets


def urls(settings: Settings, sockets: Sequence[socket.socket]) -> list[str]:
    scheme = "https" if settings.tls_cert is not None else "http"
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    return [f"{scheme}://{host}:{sock.getsockname()[1]}" for sock in sockets]


class HostServer(uvicorn.Server):
    """Server that reports the start of its stop, before it waits for calls in flight, and the end of that
    wait.

    Attributes:
        stopped_by: First signal that stopped it, None when none did.
    """

    def __init__(
        self, app: FastAPI, settings: Settings, on_stop: Callable[[], None], on_late: Callable[[], None]
    ) -> None:
        """Configure uvicorn: no access log, no `Server` header, a bounded shutdown."""
        config = uvicorn.Config(
            app,
            log_config=None,
            access_log=False,
            server_header=False,
            date_header=False,
            lifespan="off",
            ssl_certfile=settings.tls_cert,
            ssl_keyfile=settings.tls_key,
            timeout_keep_alive=KEEP_ALIVE_S,
            timeout_graceful_shutdown=GRACE_S,
            backlog=BACKLOG,
            ws="none",
            proxy_headers=False,
        )
        super().__init__(config)
        self.stopped_by: int | None = None
        self._on_stop, self._on_late = on_stop, on_late
        self._bounds = ConnectionBounds.of(settings.max_connections, settings.max_connections_per_address)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Serve the sockets; replaces uvicorn's own start, which bounds nothing."""
        assert sockets is not None
        table = ConnectionTable(self._bounds)
        listeners = listen(sockets, table, self.config, self.server_state, self.lifespan.state)
        self.servers = cast(list[asyncio.Server], listeners)
        self.started = True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Wait for calls in flight, and end them shortly before their time is over."""
        late = asyncio.get_running_loop().call_later(GRACE_S - TELL_S, self._on_late)
        try:
            await super().shutdown(sockets)
        finally:
            late.cancel()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave the signals to `listen_to_signals`, which covers more than the serving."""
        yield

    @contextlib.contextmanager
    def listen_to_signals(self) -> Iterator[None]:
        """Let SIGINT, SIGTERM and a closed terminal stop it, also while it starts and cleans up."""
        loop = asyncio.get_running_loop()
        signals = [signal.SIGINT, signal.SIGTERM]
        if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # not under nohup
            signals.append(signal.SIGHUP)
        for sig in signals:
            loop.add_signal_handler(sig, self._stop, sig)
        try:
            yield
        finally:
            for sig in signals:
                loop.remove_signal_handler(sig)

    def _stop(self, sig: int) -> None:
        """Start to stop. A further signal changes nothing, since the remaining work is bounded."""
        if self.stopped_by is None:
            self.stopped_by = sig
            self._on_stop()
        self.should_exit = True
