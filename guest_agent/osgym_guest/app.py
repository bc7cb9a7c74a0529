"""Composition root of the guest agent: settings, sockets, signals, start and end."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import socket
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from osgym_guest import osworld, reach
from osgym_guest._native import Display, DisplayError, DisplayGone, forbid_inspection
from osgym_guest.api import Api
from osgym_guest.engine import Engine, open_screen
from osgym_guest.http import Router
from osgym_guest.osworld.starter import SessionStarter, SessionUnavailable
from osgym_guest.osworld.x11 import XError
from osgym_guest.screen import ScreenController
from osgym_guest.server import BACKLOG, Server
from osgym_guest.settle import Policies, load_policies, with_table
from osgym_protocol.guest_api import DEFAULT_PORT, EXIT_DISPLAY_GONE, LISTEN_FD
from osgym_protocol.settle_table import ENVIRONMENT

if TYPE_CHECKING:  # in a virtual machine only: elsewhere it is not imported
    from osgym_guest.identity import Identities

CONNECT_EVERY_S = 0.01
EXIT_BAD_SETTINGS = 2
EXIT_BROKEN = 4


@dataclass(frozen=True)
class AgentSettings:
    """Settings of the guest agent, read from its environment.

    Attributes:
        listen: Address host:port of the TCP socket, used when no socket is inherited (OSGYM_LISTEN).
        inherited: A listening socket is on descriptor 3 (LISTEN_FDS=1).
        token: Bearer token that callers need (OSGYM_TOKEN).
        generation: Generation of the replica (OSGYM_GENERATION).
        fbdir: Directory of Xvfb's framebuffer file (OSGYM_FBDIR).
        expect: Kinds of windows that a drawn desktop has (OSGYM_EXPECT, ``dock,desktop``).
        display_wait_s: Deadline for the start of the X server (OSGYM_DISPLAY_WAIT_S).
        state_file: File that keeps the sequence number over a restart (OSGYM_STATE_DIR or XDG_RUNTIME_DIR).
        settle: Settle policies that override the built-in ones (OSGYM_SETTLE).
        helper_warm_s: Idle time after which the accessibility helper ends (OSGYM_HELPER_WARM_S). ``inf``
            keeps it, which suits a frozen template that shares its memory with the clones.
        identity_socket: Socket of `osgym-identity`, in a virtual machine (OSGYM_IDENTITY_SOCKET).
        settle_table: Calibrated settle horizons as JSON (OSGYM_SETTLE_TABLE).
        settle_trace: File to which the signals of each settle are appended (OSGYM_SETTLE_TRACE).
    """

    listen: tuple[str, int]
    inherited: bool
    token: str
    generation: str
    fbdir: str | None
    expect: frozenset[str]
    display_wait_s: float
    state_file: Path | None
    settle: Path | None
    settle_table: str | None
    settle_trace: str | None
    identity_socket: Path | None
    helper_warm_s: float

    @staticmethod
    def from_environment(env: Mapping[str, str]) -> AgentSettings:
        """Read the settings. Raises ValueError if a variable has an invalid value."""
        host, _, port = env.get("OSGYM_LISTEN", f"127.0.0.1:{DEFAULT_PORT}").rpartition(":")
        expect = frozenset(word for word in env.get("OSGYM_EXPECT", "").split(",") if word)
        if not expect <= {"dock", "desktop"}:
            raise ValueError(f"OSGYM_EXPECT may name dock and desktop, not {sorted(expect)}")
        state = env.get("OSGYM_STATE_DIR") or env.get("XDG_RUNTIME_DIR")
        settle = env.get("OSGYM_SETTLE")
        return AgentSettings(
            listen=(host, int(port)),
            inherited=env.get("LISTEN_FDS") == "1",
            token=env.get("OSGYM_TOKEN", ""),
            generation=env.get("OSGYM_GENERATION", ""),
            fbdir=env.get("OSGYM_FBDIR") or None,
            expect=expect,
            display_wait_s=float(env.get("OSGYM_DISPLAY_WAIT_S", "30")),
            state_file=Path(state) / "osgym-guest.seq" if state else None,
            settle=Path(settle) if settle else None,
            settle_table=env.get(ENVIRONMENT) or None,
            settle_trace=env.get("OSGYM_SETTLE_TRACE") or None,
            helper_warm_s=float(env.get("OSGYM_HELPER_WARM_S", "60")),
            identity_socket=Path(helper) if (helper := env.get("OSGYM_IDENTITY_SOCKET")) else None,
        )


def _listener(settings: AgentSettings) -> socket.socket:
    """Return the inherited listening socket, or open one."""
    if settings.inherited:
        return socket.socket(fileno=LISTEN_FD)
    family = socket.AF_INET6 if ":" in settings.listen[0] else socket.AF_INET
    return socket.create_server(settings.listen, family=family, backlog=BACKLOG)


async def _connect(
    settings: AgentSettings, policies: Policies, starter: SessionStarter | None
) -> ScreenController:
    """Open the display as soon as its X server is up.

    Args:
        starter: Starts programs for the agent; None where the agent starts them itself.

    Raises:
        DisplayGone: The X server was not up within the deadline.
        DisplayError: The X server lacks an extension that the agent needs.
        SessionUnavailable: The starter cannot be reached.
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + settings.display_wait_s

    def make(display: Display) -> ScreenController:
        if starter is not None:
            display.starter(starter.pid)
        return ScreenController(display, policies, settings.settle_trace)

    while True:
        try:
            return open_screen(None, settings.fbdir, make)
        except DisplayGone:
            if loop.time() >= deadline:
                raise
            await asyncio.sleep(CONNECT_EVERY_S)


def _identities(settings: AgentSettings) -> Identities | None:
    if settings.identity_socket is None:
        return None
    from osgym_guest.identity import Identities

    folder = settings.state_file.parent if settings.state_file else None
    return Identities(settings.identity_socket, folder / "osgym-guest.identity" if folder else None)


async def main() -> int:
    """Serve until SIGTERM (exit code 0) or the end of the X server (3).

    The agent also ends after an identity that was applied in part, and with a session that starts no programs
    (4).
    """
    try:
        settings = AgentSettings.from_environment(os.environ)
        policies = load_policies(settings.settle)
        if settings.settle_table is not None:
            policies = with_table(policies, settings.settle_table)
    except ValueError as exc:
        print(f"osgym_guest: {exc}", file=sys.stderr)
        return EXIT_BAD_SETTINGS
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[int] = loop.create_future()

    def end(code: int) -> None:
        if not ended.done():
            ended.set_result(code)

    for number in (signal.SIGTERM, signal.SIGINT):
        # `loop.add_signal_handler` imports `inspect` and what that needs: 5 ms of each fresh desktop.
        signal.signal(number, lambda *_: loop.call_soon_threadsafe(end, 0))
    identities = _identities(settings)
    last = identities.last if identities else None
    generation, token = (str(last.generation), last.token) if last else (settings.generation, settings.token)
    engine = Engine(
        on_gone=lambda: end(EXIT_DISPLAY_GONE),
        expect=settings.expect,
        state_file=settings.state_file,
        generation=generation,
    )
    router = Router()
    server = Server(router, token=token)

    def broken(why: str) -> None:
        print(f"osgym_guest: the identity was applied only partly: {why}", file=sys.stderr)
        end(EXIT_BROKEN)

    if last is not None and not last.token:
        server.await_claim()
    api = Api(engine, generation, identities, server.set_token, server.await_claim, broken)
    api.register(router)
    services = osworld.register(router, engine, helper_warm_s=settings.helper_warm_s)
    reach.register(router, services)
    if services.session.starter is not None:
        forbid_inspection()
        if services.session.root is not None:  # a virtual machine: elsewhere it is not imported
            from osgym_guest.maintenance import Maintenance

            Maintenance(services.session.starter).register(router)
    server.listen(_listener(settings))

    async def bring_up() -> None:
        try:
            engine.attach(await _connect(settings, policies, services.session.starter))
            await engine.become_ready()
            if services.session.starter is not None:
                await services.windows.connect()
            gc.freeze()  # collecting garbage writes to every object it looks at: pages that clones share
        except (DisplayGone, DisplayError, XError) as exc:
            print(f"osgym_guest: {exc}", file=sys.stderr)
            end(EXIT_DISPLAY_GONE)
        except SessionUnavailable as exc:
            print(f"osgym_guest: {exc}", file=sys.stderr)
            end(EXIT_BROKEN)

    starting = asyncio.ensure_future(bring_up())
    try:
        return await ended
    finally:
        starting.cancel()
        await server.close()
        await services.close()
        engine.close()
