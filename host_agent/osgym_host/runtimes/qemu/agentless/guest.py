"""One guest without our agent, served as guest protocol v1 on a unix socket of the host."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from osgym_guest.protocol import MAX_DURATION_MS, RECORD_TYPE, pack_record
from osgym_guest.protocol.actions import InvalidAction, parse_actions
from osgym_host.runtimes.base import GuestAddress, UnixAddress
from osgym_host.runtimes.qemu.agentless import osworld
from osgym_host.runtimes.qemu.agentless.display import Display, QmpDisplay
from osgym_host.runtimes.qemu.agentless.engine import Engine, Step
from osgym_host.runtimes.qemu.agentless.options import number, parse_observe, parse_settle, sequence_number
from osgym_host.runtimes.qemu.agentless.osworld import OsworldServer
from osgym_host.runtimes.qemu.agentless.remote import RemoteDisplay
from osgym_host.runtimes.qemu.agentless.serve import Answer, Handler, Refused, Request, UnixServer
from osgym_host.runtimes.qemu.agentless.vcpu import Vcpus
from osgym_sdk.wire import ObserveOptions

VERSION = "agentless-1"
MAX_READY_S = 600.0
READY_QUIET_S = 0.3
CONNECT_TIMEOUT_S = 15.0
MIN_PROBE_S = 1.0


class ScreenSource(StrEnum):
    """Where the screen is read and input is given."""

    VGA = "vga"  # the machine's own devices, by QMP
    SERVER = "server"  # OSWorld's server in the guest: /screenshot, and pyautogui by /execute


@dataclass(frozen=True, slots=True)
class Facts:
    """What must be known of a machine to serve its guest.

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
    """Serves one guest until `close`. Its state (sequence numbers) lives here, not in the guest."""

    def __init__(self, facts: Facts, display: Display, vcpus: Vcpus | None) -> None:
        """Use `open`."""
        self._facts = facts
        self._engine = Engine(display, vcpus)
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
    async def open(cls, facts: Facts, socket_path: Path) -> AgentlessGuest:
        """Connect to the machine and listen at `socket_path`.

        Raises:
            QmpError: The machine's second QMP server does not answer.
            OSError: The socket cannot be bound.
            ValueError: The screen is to come from where there is nothing.
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
        """Where it is served: `Replica.guest`."""
        assert self._path is not None, "it is not open"
        return UnixAddress(self._path)

    @property
    def engine(self) -> Engine:
        """The screen and input, for whoever builds a snapshot of this guest."""
        return self._engine

    async def close(self) -> None:
        """Stop serving; the machine goes on. Idempotent."""
        await self._server.close()
        await self._engine.close()
        if self._osworld is not None:
            self._osworld.close()

    async def handle(self, request: Request) -> Answer:
        """Answer one request.

        Raises:
            Refused: An answer that is no success.
        """
        handler = self._routes.get((request.method, request.path))
        if handler is not None:
            return await handler(request)
        if request.path.startswith("/v1/"):
            if request.path == "/v1/identity":
                raise osworld.not_available(request)
            raise Refused(404, "not_found", f"there is no {request.method} {request.path}")
        return await self._besides(request)

    # Guest protocol v1 -----------------------------------------------------------------------

    async def _health(self, request: Request) -> Answer:
        del request
        return Answer.json(self._state())

    async def _ready(self, request: Request) -> Answer:
        body = request.fields(("timeout_s",))
        timeout_s = number(body.get("timeout_s", 30.0), "timeout_s", 0, MAX_READY_S)
        ends_s = time.monotonic() + timeout_s
        await self._engine.ready(timeout_s, self._facts.ready_quiet_s, self._facts.ready_size)
        if self._osworld is not None:
            await self._osworld.ready(max(MIN_PROBE_S, ends_s - time.monotonic()))
        return Answer.json(self._state())

    async def _step(self, request: Request) -> Answer:
        body = request.fields(("seq", "actions", "settle", "observe"))
        seq = sequence_number(body.get("seq"))

        async def run() -> Step:
            screen = await self._engine.screen_size()
            wait = parse_settle(body.get("settle"))
            look = parse_observe(body.get("observe"), screen)
            raw = body.get("actions", [])
            try:
                actions = parse_actions(raw, screen)
            except InvalidAction as exc:
                raise Refused(400, "invalid_action", exc.message, {"index": exc.index}) from exc
            plans, held = self._engine.planned(actions, [item["op"] for item in raw])
            return await self._engine.act(seq, plans, held, wait, look)

        return _record(await self._engine.step(seq, run))

    async def _observe(self, request: Request) -> Answer:
        body = request.fields(("observe",))
        look = parse_observe(body.get("observe"), await self._engine.screen_size())
        return _record(await self._engine.observe(look))

    async def _final(self, request: Request) -> Answer:
        body = request.fields(("seq", "timeout_ms", "observe"))
        look = parse_observe(body.get("observe"), await self._engine.screen_size())
        timeout_ms = number(body.get("timeout_ms", 3000), "timeout_ms", 0, MAX_DURATION_MS)
        return _record(await self._engine.final(sequence_number(body.get("seq")), timeout_ms, look))

    async def _release(self, request: Request) -> Answer:
        del request
        return Answer.json({"released": await self._engine.release()})

    def _state(self) -> dict[str, Any]:
        return {
            "status": "ok",
            "version": VERSION,
            "generation": str(self._facts.generation),
            "uptime_s": round(time.monotonic() - self._started_s, 3),
            "desktop_ready": self._engine.is_ready,
            "last_seq": self._engine.last_seq,
        }

    # OSWorld's endpoints ---------------------------------------------------------------------

    async def _besides(self, request: Request) -> Answer:
        osworld.endpoint(request)
        if request.path == "/screenshot":
            shot = await self._engine.observe(ObserveOptions())
            return Answer(200, "image/png", (shot.image,))
        if request.path == "/screen_size":
            return Answer.json(osworld.screen_size_answer(await self._engine.screen_size()))
        if request.path == "/cursor_position" and self._engine.pointer is not None:
            return Answer.json(list(self._engine.pointer))
        if self._osworld is None:
            raise osworld.not_available(request)
        return await self._osworld.pass_on(request)


async def _reach(facts: Facts) -> tuple[Display, Vcpus | None]:
    """Open the screen, and find out where the guest's work can be seen."""
    machine = None if facts.qmp is None else await QmpDisplay.open(facts.qmp, timeout_s=CONNECT_TIMEOUT_S)
    vcpus: Vcpus | None = None
    try:
        if machine is not None and facts.pid is not None:
            vcpus = await Vcpus.of(machine.qmp, facts.pid)
        if facts.screen is ScreenSource.SERVER:
            if facts.server is None:
                raise ValueError("the screen cannot come from a server that the guest does not have")
            if machine is not None:
                await machine.close()
            return RemoteDisplay(OsworldServer(facts.server, facts.token)), vcpus
    except BaseException:
        if machine is not None:
            await machine.close()
        raise
    if machine is None:
        raise ValueError("the VGA screen is read by a QMP server")
    return machine, vcpus


def _record(step: Step) -> Answer:
    return Answer(200, RECORD_TYPE, pack_record(step.meta, step.image))
