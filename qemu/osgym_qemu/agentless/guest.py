"""Guest without our agent, served as guest protocol v1 on a unix socket of the host."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, assert_never

from osgym_host.addresses import GuestAddress, UnixAddress
from osgym_protocol.actions import InvalidAction, parse_actions
from osgym_protocol.codec import WireFormatError, known_fields
from osgym_protocol.codes import GuestErrorCode
from osgym_protocol.guest_api import STEP_FIELDS, number, sequence_number
from osgym_protocol.ledger import StepRefused
from osgym_protocol.limits import DEFAULT_FINAL_MS, DEFAULT_READY_S, MAX_DURATION_MS, MAX_READY_S
from osgym_protocol.observation import ObservedFrame
from osgym_protocol.options import ObserveOptions, parse_expects, parse_observe, parse_settle
from osgym_protocol.records import RECORDS_TYPE
from osgym_qemu.agentless import osworld
from osgym_qemu.agentless.display import GuestDisplay, QmpDisplay
from osgym_qemu.agentless.engine import AgentlessEngine
from osgym_qemu.agentless.osworld import OsworldServer
from osgym_qemu.agentless.remote import RemoteDisplay
from osgym_qemu.agentless.serve import (
    Handler,
    HttpRequest,
    RefusedRequest,
    ServedResponse,
    UnixServer,
)
from osgym_qemu.agentless.vcpu import Vcpus

VERSION = "agentless-1"
READY_QUIET_S = 0.3
CONNECT_TIMEOUT_S = 15.0
MIN_PROBE_S = 1.0


class ScreenSource(StrEnum):
    VGA = "vga"  # the machine's own devices, by QMP
    SERVER = "server"  # OSWorld's server in the guest: /screenshot, and pyautogui by /execute


@dataclass(frozen=True, slots=True)
class MachineFacts:
    """Facts about a machine that are needed to serve its guest.

    Attributes:
        qmp: Path of its second QMP server (`Launch.screen_qmp`); None where its VGA screen is not used.
        pid: Host PID of QEMU, to see whether the guest works; None where it cannot be seen.
        server: Where OSWorld's server in the guest is reached; None for a guest without any.
        token: What that server demands; OSWorld's own demands nothing.
        ready_quiet_s: How long the screen is quiet when the guest counts as ready.
        ready_size: Size that its screen has by then: firmware and boot loader have others. None: any.
    """

    generation: int
    qmp: Path | None
    pid: int | None
    server: GuestAddress | None = None
    token: str | None = None
    screen: ScreenSource = ScreenSource.VGA
    ready_quiet_s: float = READY_QUIET_S
    ready_size: tuple[int, int] | None = None


class AgentlessGuest:
    """Server of one guest until `close`. Its state (sequence numbers) lives here, not in the guest."""

    def __init__(self, facts: MachineFacts, display: GuestDisplay, vcpus: Vcpus | None) -> None:
        self._facts = facts
        self._engine = AgentlessEngine(display, vcpus)
        self._osworld = OsworldServer(facts.server, facts.token) if facts.server is not None else None
        self._server = UnixServer(self.handle)
        self._path: Path | None = None
        self._started_s = time.monotonic()
        self._routes: Mapping[tuple[str, str], Handler] = {
            ("GET", "/v1/health"): self._health,
            ("POST", "/v1/ready"): self._ready,
            ("POST", "/v1/step"): self._step,
            ("POST", "/v1/observe"): self._observe,
            ("POST", "/v1/final"): self._final,
            ("POST", "/v1/release"): self._release,
        }

    @classmethod
    async def open(cls, facts: MachineFacts, socket_path: Path) -> AgentlessGuest:
        """Connect to the machine and listen at `socket_path`.

        Raises:
            QmpError: The machine's second QMP server does not answer.
            OSError: The socket cannot be bound.
            ValueError: The machine lacks the source of the screen.
        """
        display, vcpus = await _reach(facts)
        guest = cls(facts, display, vcpus)
        try:
            await guest._server.listen(socket_path)
        except BaseException:
            await guest.close()
            raise
        guest._path = socket_path
        return guest

    @property
    def address(self) -> UnixAddress:
        assert self._path is not None, "the guest is not open"
        return UnixAddress(self._path)

    async def close(self) -> None:
        """Stop serving; the machine goes on. Idempotent."""
        await self._server.close()
        await self._engine.close()
        if self._osworld is not None:
            self._osworld.close()

    async def handle(self, request: HttpRequest) -> ServedResponse:
        """Answer one request.

        Raises:
            RefusedRequest: An answer with an error status.
        """
        handler = self._routes.get((request.method, request.path))
        if handler is not None:
            return await handler(request)
        if request.path.startswith("/v1/"):
            if request.path == "/v1/identity":
                raise osworld.not_available(request)
            raise RefusedRequest(
                404, GuestErrorCode.NOT_FOUND, f"unknown path {request.method} {request.path}"
            )
        return await self._besides(request)

    # Guest protocol v1 -----------------------------------------------------------------------

    async def _health(self, request: HttpRequest) -> ServedResponse:
        del request
        return ServedResponse.json(self._state())

    async def _ready(self, request: HttpRequest) -> ServedResponse:
        with _refusing():
            body = known_fields(request.fields(), ("timeout_s",), request.path)
            timeout_s = number(body.get("timeout_s", DEFAULT_READY_S), "timeout_s", 0, MAX_READY_S)
        ends_s = time.monotonic() + timeout_s
        await self._engine.ready(timeout_s, self._facts.ready_quiet_s, self._facts.ready_size)
        if self._osworld is not None:
            await self._osworld.ready(max(MIN_PROBE_S, ends_s - time.monotonic()))
        return ServedResponse.json(self._state())

    async def _step(self, request: HttpRequest) -> ServedResponse:
        with _refusing():
            body = known_fields(request.fields(), STEP_FIELDS, request.path)
            seq = sequence_number(body.get("seq"))
        screen = await self._engine.screen_size()
        with _refusing():
            known = self._engine.steps.find(seq)
            if known is None:
                wait = parse_settle(body.get("settle"))
                look = parse_observe(body.get("observe"))
                look.check_region(screen)
                expects = parse_expects(body.get("expects"))
                plans, held = self._engine.planned(parse_actions(body.get("actions", []), screen))
        if known is not None:
            return _record((await asyncio.shield(known)).replayed())
        return _record(await asyncio.shield(self._engine.step(seq, plans, held, wait, look, expects)))

    async def _observe(self, request: HttpRequest) -> ServedResponse:
        screen = await self._engine.screen_size()
        with _refusing():
            body = known_fields(request.fields(), ("observe",), request.path)
            look = parse_observe(body.get("observe"))
            look.check_region(screen)
        return _record(await self._engine.observe(look))

    async def _final(self, request: HttpRequest) -> ServedResponse:
        screen = await self._engine.screen_size()
        with _refusing():
            body = known_fields(request.fields(), ("seq", "timeout_ms", "observe"), request.path)
            look = parse_observe(body.get("observe"))
            look.check_region(screen)
            timeout_ms = number(body.get("timeout_ms", DEFAULT_FINAL_MS), "timeout_ms", 0, MAX_DURATION_MS)
            seq = sequence_number(body.get("seq"))
            self._engine.steps.require_last(seq)
        return _record(await self._engine.final(seq, timeout_ms, look))

    async def _release(self, request: HttpRequest) -> ServedResponse:
        del request
        return ServedResponse.json({"released": await self._engine.release()})

    def _state(self) -> dict[str, Any]:
        return {
            "status": "ok",
            "version": VERSION,
            "generation": str(self._facts.generation),
            "uptime_s": round(time.monotonic() - self._started_s, 3),
            "desktop_ready": self._engine.is_ready,
            "last_seq": self._engine.steps.last_seq,
        }

    # OSWorld's endpoints ---------------------------------------------------------------------

    async def _besides(self, request: HttpRequest) -> ServedResponse:
        osworld.endpoint(request)
        if request.path == "/screenshot":
            shot = await self._engine.observe(ObserveOptions())
            return ServedResponse(200, "image/png", (shot.image,))
        if request.path == "/screen_size":
            return ServedResponse.json(osworld.screen_size_answer(await self._engine.screen_size()))
        if request.path == "/cursor_position" and self._engine.pointer is not None:
            return ServedResponse.json(list(self._engine.pointer))
        if self._osworld is None:
            raise osworld.not_available(request)
        return await self._osworld.pass_on(request)


async def _reach(facts: MachineFacts) -> tuple[GuestDisplay, Vcpus | None]:
    """Open the screen, and find the vCPUs whose work tells whether the guest rests."""
    machine = None if facts.qmp is None else await QmpDisplay.open(facts.qmp, timeout_s=CONNECT_TIMEOUT_S)
    vcpus: Vcpus | None = None
    try:
        if machine is not None and facts.pid is not None:
            vcpus = await Vcpus.of(machine.qmp, facts.pid)
        match facts.screen:
            case ScreenSource.VGA if machine is not None:
                return machine, vcpus
            case ScreenSource.VGA:
                raise ValueError("the VGA screen is read by a QMP server")
            case ScreenSource.SERVER if facts.server is None:
                raise ValueError("--screen server needs a guest with a server")
            case ScreenSource.SERVER:
                if machine is not None:
                    await machine.close()
                return RemoteDisplay(OsworldServer(facts.server, facts.token)), vcpus
            case _ as never:
                assert_never(never)
    except BaseException:
        if machine is not None:
            await machine.close()
        raise


@contextmanager
def _refusing() -> Iterator[None]:
    """Context that answers 400 to malformed requests, and 409 to conflicts of the ledger."""
    try:
        yield
    except InvalidAction as exc:
        raise RefusedRequest(400, GuestErrorCode.INVALID_ACTION, exc.message, {"index": exc.index}) from exc
    except WireFormatError as exc:
        raise RefusedRequest(400, GuestErrorCode.BAD_REQUEST, str(exc)) from exc
    except StepRefused as exc:
        raise RefusedRequest(409, exc.code, exc.message, exc.details) from exc


def _record(frame: ObservedFrame) -> ServedResponse:
    return ServedResponse(200, RECORDS_TYPE, frame.record())
