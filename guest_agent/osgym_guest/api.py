"""Endpoints of guest protocol v1."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from osgym_guest import __version__
from osgym_guest._native import kernel_times_ns
from osgym_guest.clock import DesktopClock
from osgym_guest.clock_pauses import ClockPauses
from osgym_guest.engine import CheckedStep, Engine
from osgym_guest.http import HttpError, Request, Response, Router, bad
from osgym_guest.server import IDENTITY_PATH
from osgym_protocol.actions import InvalidAction, parse_actions
from osgym_protocol.codec import WireFormatError, known_fields
from osgym_protocol.codes import GuestErrorCode
from osgym_protocol.guest_api import FINAL_FIELDS, STEP_FIELDS, number, sequence_number
from osgym_protocol.ledger import StepRefused
from osgym_protocol.limits import (
    DEFAULT_FINAL_MS,
    DEFAULT_READY_S,
    MAX_DURATION_MS,
    MAX_READY_S,
    MAX_STEP_BODY_BYTES,
    MAX_THINK_S,
)
from osgym_protocol.observation import ObservedFrame
from osgym_protocol.options import ObserveOptions, parse_expects, parse_observe, parse_settle
from osgym_protocol.records import RECORDS_TYPE

if TYPE_CHECKING:  # in a virtual machine only: elsewhere it is not imported
    from osgym_guest.identity import Identities

MAX_IDENTITY_BODY = 16 * 1024
SLACK_S = 30.0


class Api:
    """Endpoints under /v1.

    Args:
        identities: Applies new identities; None outside virtual machines.
        set_token: Called with the bearer token that the server demands from then on.
        await_claim: Called to make the server refuse everything but the next identity.
        on_broken: Called with the reason when an identity was applied in part; the agent must end.
    """

    def __init__(
        self,
        engine: Engine,
        generation: str,
        identities: Identities | None = None,
        set_token: Callable[[str], None] = lambda token: None,
        await_claim: Callable[[], None] = lambda: None,
        on_broken: Callable[[str], None] = lambda why: None,
    ) -> None:
        self._engine = engine
        self._generation = generation
        self._identities = identities
        self._set_token = set_token
        self._await_claim = await_claim
        self._on_broken = on_broken
        self._clock = DesktopClock(engine, identities)
        self._pauses = ClockPauses() if identities is None else None
        self._started_ns = kernel_times_ns()[0]

    def register(self, router: Router) -> None:
        longest_s = 2 * MAX_DURATION_MS / 1000 + SLACK_S
        router.add("GET", "/v1/health", self.health)
        router.add("POST", "/v1/ready", self.ready, deadline_s=MAX_READY_S + SLACK_S)
        router.add("POST", "/v1/step", self.step, max_body=MAX_STEP_BODY_BYTES, deadline_s=longest_s)
        router.add("POST", "/v1/observe", self.observe, deadline_s=longest_s)
        router.add("POST", "/v1/final", self.final, deadline_s=longest_s)
        router.add("POST", "/v1/release", self.release, deadline_s=longest_s)
        router.add("POST", "/v1/clock", self.clock)
        router.add("POST", "/v1/clock/hold", self.hold_clock)
        router.add("POST", "/v1/clock/resume", self.resume_clock)
        if self._identities is not None:
            router.add("POST", IDENTITY_PATH, self.identity, max_body=MAX_IDENTITY_BODY)

    # ---- endpoints ----

    def health(self, request: Request) -> Response:
        """Return the state of the agent."""
        return Response.json(self._health(self._uptime_s()))

    async def ready(self, request: Request) -> Response:
        """Return the state of the agent once the desktop is drawn and quiet."""
        with _refusing():
            body = known_fields(request.json_object(), ("timeout_s",), request.path)
            timeout_s = number(body.get("timeout_s", DEFAULT_READY_S), "timeout_s", 0, MAX_READY_S)
        await self._engine.wait_ready(timeout_s)
        return Response.json(self._health(self._uptime_s()))

    async def step(self, request: Request) -> Response:
        """Act, settle and observe. A sequence number that was done already gets its answer again."""
        with _refusing():
            body = known_fields(request.json_object(), STEP_FIELDS, request.path)
            seq = sequence_number(body.get("seq"))
            known = self._engine.steps.find(seq)
            if known is None:
                screen_size = self._engine.screen_size()
                settle = parse_settle(body.get("settle"))
                observe = parse_observe(body.get("observe"))
                observe.check_region(screen_size)
                expects = parse_expects(body.get("expects"))
                hold = _hold_of(body.get("hold", False), self._clock_pauses)
                actions = parse_actions(body.get("actions", []), screen_size)
        if known is not None:
            return _record((await asyncio.shield(known)).replayed())
        step = self._engine.step(CheckedStep(seq, actions, settle, observe, expects, hold))
        return _record(await asyncio.shield(step))

    async def observe(self, request: Request) -> Response:
        """Return a frame of the screen now."""
        with _refusing():
            body = known_fields(request.json_object(), ("observe",), request.path)
            options = self._look(body)
        return _record(await self._engine.observe(options))

    async def final(self, request: Request) -> Response:
        """Return the frame after a step, once it is final."""
        with _refusing():
            body = known_fields(request.json_object(), FINAL_FIELDS, request.path)
            options, hold = self._look(body), _hold_of(body.get("hold", False), self._clock_pauses)
            timeout_ms = number(body.get("timeout_ms", DEFAULT_FINAL_MS), "timeout_ms", 0, MAX_DURATION_MS)
            seq = sequence_number(body.get("seq"))
            self._engine.steps.require_last(seq)
        return _record(await self._engine.final(seq, timeout_ms, options, hold))

    async def release(self, request: Request) -> Response:
        """Release every held key and button."""
        return Response.json({"released": await self._engine.release()})

    async def clock(self, request: Request) -> Response:
        """Set the desktop's wall clock, once. The answer waits until the panel shows it."""
        with _refusing():
            await self._clock.set(request.json_object())
        return Response.json({"status": "ok"})

    def hold_clock(self, request: Request) -> Response:
        """Let all clocks stand still, until they are resumed."""
        self._clock_pauses().hold()
        return Response.json({"status": "ok"})

    def resume_clock(self, request: Request) -> Response:
        """Let the clocks go on. The answer has the rest of the charge that has not passed yet."""
        with _refusing():
            body = known_fields(request.json_object(), ("charge_s",), request.path)
            charge_s = body.get("charge_s")
            if charge_s is not None:
                charge_s = number(charge_s, "charge_s", 0, MAX_THINK_S)
        return Response.json({"left_s": self._clock_pauses().resume(charge_s)})

    def _clock_pauses(self) -> ClockPauses:
        """Return the pauses of a container. Raises HttpError: 501 in a virtual machine."""
        if self._pauses is None:
            text = "the clocks of a virtual machine cannot stand still"
            raise HttpError(501, GuestErrorCode.NOT_AVAILABLE, text)
        return self._pauses

    def identity(self, request: Request) -> Response:
        """Apply a new identity and return which of its parts changed."""
        assert self._identities is not None
        taken = self._identities.take(request.json_object())
        if taken.token:
            self._set_token(taken.token)
        else:
            self._await_claim()
        self._generation = str(taken.generation)
        # Whole seconds: to write down a fraction takes more code than all the rest of this.
        health = self._health(int(self._uptime_s()))
        return Response.json({**health, "applied": dict(taken.applied)}, then=self._settle)

    def _look(self, body: Mapping[str, Any]) -> ObserveOptions:
        options = parse_observe(body.get("observe"))
        options.check_region(self._engine.screen_size())
        return options

    def _settle(self) -> None:
        """Finish an identity after its answer. On failure the agent ends: half an identity is unusable."""
        assert self._identities is not None
        try:
            # First: an agent that is killed in between must not count from 0 as the new one.
            self._engine.set_generation(self._generation)
            self._identities.settle()
        except (HttpError, OSError) as exc:
            self._on_broken(str(exc))

    def _uptime_s(self) -> float:
        """Return the real time since the start, which a host compares with its own."""
        return round((kernel_times_ns()[0] - self._started_ns) / 1e9, 3)

    def _health(self, uptime_s: float) -> dict[str, Any]:
        return {
            "status": "ok",
            "version": __version__,
            "generation": self._generation,
            "uptime_s": uptime_s,
            "desktop_ready": self._engine.is_ready,
            "last_seq": self._engine.steps.last_seq,
        }


@contextmanager
def _refusing() -> Iterator[None]:
    """Answer 400 where the protocol's parsers refuse a request, and 409 where the step ledger does."""
    try:
        yield
    except InvalidAction as exc:
        raise HttpError(400, GuestErrorCode.INVALID_ACTION, exc.message, {"index": exc.index}) from exc
    except WireFormatError as exc:
        raise bad(str(exc)) from exc
    except StepRefused as exc:
        raise HttpError(409, exc.code, exc.message, exc.details) from exc


def _hold_of(asked: Any, pauses: Callable[[], ClockPauses]) -> Callable[[], None] | None:
    if type(asked) is not bool:
        raise bad("hold must be true or false")
    return pauses().hold if asked else None


def _record(frame: ObservedFrame) -> Response:
    return Response(200, {"Content-Type": RECORDS_TYPE}, list(frame.record()))
