"""The endpoints of guest protocol v1."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from osgym_guest import __version__
from osgym_guest.engine import Answer, Engine
from osgym_guest.http import HttpError, Request, Response, Router
from osgym_guest.options import ObserveOptions, bad, number, parse_observe, parse_settle
from osgym_guest.protocol import MAX_DURATION_MS, RECORD_TYPE, pack_record
from osgym_guest.protocol.actions import InvalidAction, parse_actions

if TYPE_CHECKING:  # in a virtual machine only: elsewhere it is not imported
    from osgym_guest.identity import Identities

MAX_STEP_BODY = 1 << 20
MAX_IDENTITY_BODY = 16 * 1024
MAX_READY_S = 600.0
SLACK_S = 30.0


class Api:
    """Endpoints under /v1, and what the OSWorld endpoints need of the desktop (`Desktop`).

    Args:
        identities: takes new identities, in a virtual machine only.
        set_token: has the server demand another token.
        on_broken: told what went wrong when an identity was taken in part; the agent must end.
    """

    def __init__(
        self,
        engine: Engine,
        generation: str,
        identities: Identities | None = None,
        set_token: Callable[[str], None] = lambda token: None,
        on_broken: Callable[[str], None] = lambda why: None,
    ) -> None:
        self._engine = engine
        self._generation = generation
        self._identities = identities
        self._set_token = set_token
        self._on_broken = on_broken
        self._started = time.monotonic()

    def register(self, router: Router) -> None:
        """Add the endpoints."""
        longest_s = 2 * MAX_DURATION_MS / 1000 + SLACK_S
        router.add("GET", "/v1/health", self.health)
        router.add("POST", "/v1/ready", self.ready, deadline_s=MAX_READY_S + SLACK_S)
        router.add("POST", "/v1/step", self.step, max_body=MAX_STEP_BODY, deadline_s=longest_s)
        router.add("POST", "/v1/observe", self.observe, deadline_s=longest_s)
        router.add("POST", "/v1/final", self.final, deadline_s=longest_s)
        router.add("POST", "/v1/release", self.release, deadline_s=longest_s)
        if self._identities is not None:
            router.add("POST", "/v1/identity", self.identity, max_body=MAX_IDENTITY_BODY)

    # ---- Desktop ----

    async def screenshot_png(self) -> bytes:
        """The screen now, with the cursor drawn in, as a PNG file."""
        return (await self._engine.observe(ObserveOptions())).image

    def screen_size(self) -> tuple[int, int]:
        """Width and height in pixels."""
        return self._engine.screen.display.size()

    async def cursor_position(self) -> tuple[int, int]:
        """Where the pointer is, in pixels."""
        x, y, _ = await self._engine.use(lambda screen: screen.display.pointer())
        return x, y

    # ---- endpoints ----

    def health(self, request: Request) -> Response:
        """How the agent is."""
        return Response.json(self._health(round(time.monotonic() - self._started, 3)))

    async def ready(self, request: Request) -> Response:
        """The same, once the desktop is drawn and quiet."""
        body = _fields(request, ("timeout_s",))
        await self._engine.wait_ready(number(body.get("timeout_s", 30.0), "timeout_s", 0, MAX_READY_S))
        return Response.json(self._health(round(time.monotonic() - self._started, 3)))

    async def step(self, request: Request) -> Response:
        """Act, settle, observe."""
        body = _fields(request, ("seq", "actions", "settle", "observe"))
        seq = _seq(body)

        async def run() -> Answer:
            screen_size = self.screen_size()
            settle = parse_settle(body.get("settle"))
            observe = parse_observe(body.get("observe"), screen_size)
            raw = body.get("actions", [])
            try:
                actions = parse_actions(raw, screen_size)
            except InvalidAction as exc:
                raise HttpError(400, "invalid_action", exc.message, {"index": exc.index}) from exc
            return await self._engine.act(seq, actions, raw, settle, observe)

        return _record(await self._engine.step(seq, run))

    async def observe(self, request: Request) -> Response:
        """A frame as the screen is now."""
        body = _fields(request, ("observe",))
        options = parse_observe(body.get("observe"), self.screen_size())
        return _record(await self._engine.observe(options))

    async def final(self, request: Request) -> Response:
        """The frame after a step, once it is final."""
        body = _fields(request, ("seq", "timeout_ms", "observe"))
        options = parse_observe(body.get("observe"), self.screen_size())
        timeout_ms = number(body.get("timeout_ms", 3000), "timeout_ms", 0, MAX_DURATION_MS)
        return _record(await self._engine.final(_seq(body), timeout_ms, options))

    async def release(self, request: Request) -> Response:
        """Let go of every held key and button."""
        return Response.json({"released": await self._engine.release()})

    def identity(self, request: Request) -> Response:
        """Become another computer: what was applied, and how the agent is then."""
        assert self._identities is not None
        taken = self._identities.take(request.json_object())
        self._set_token(taken.token)
        self._generation = str(taken.generation)
        # Whole seconds: to write down a fraction takes more code than all the rest of this.
        health = self._health(int(time.monotonic() - self._started))
        return Response.json({**health, "applied": dict(taken.applied)}, then=self._settle)

    def _settle(self) -> None:
        """Finish what `identity` has begun. Half another machine is none: the agent ends."""
        assert self._identities is not None
        try:
            # First: an agent that is killed in between must not count from 0 as the new one.
            self._engine.set_generation(self._generation)
            self._identities.settle()
        except (HttpError, OSError) as exc:
            self._on_broken(str(exc))

    def _health(self, uptime_s: float) -> dict[str, Any]:
        return {
            "status": "ok",
            "version": __version__,
            "generation": self._generation,
            "uptime_s": uptime_s,
            "desktop_ready": self._engine.is_ready,
            "last_seq": self._engine.last_seq,
        }


def _fields(request: Request, known: tuple[str, ...]) -> dict[str, Any]:
    body = request.json_object()
    for key in body:
        if key not in known:
            raise bad(f"{request.path} has no field {key!r}")
    return body


def _seq(body: dict[str, Any]) -> int:
    seq = body.get("seq")
    if isinstance(seq, bool) or not isinstance(seq, int) or seq < 1:
        raise bad("seq must be a whole number from 1")
    return seq


def _record(answer: Answer) -> Response:
    return Response(200, {"Content-Type": RECORD_TYPE}, pack_record(answer.meta, answer.image))
