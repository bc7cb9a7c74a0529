"""Steps with sequence numbers, the watch between them, and readiness: the agent's state.

The display is used by one thread at a time: the single worker thread while a step runs, else the
event loop, which wakes only when the X server says that something changed.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from osgym_guest._native import Display, DisplayGone, now_ns
from osgym_guest.count import CountFile
from osgym_guest.http import HttpError
from osgym_guest.images import ImagingMissing
from osgym_guest.options import ObserveOptions, SettleOptions
from osgym_guest.policy import Settled
from osgym_guest.protocol.actions import Action
from osgym_guest.screen import Frame, Screen
from osgym_guest.watch import Watch

T = TypeVar("T")

MAX_WAITING = 16
READY_QUIET_MS = 10_000.0


@dataclass(frozen=True)
class Answer:
    """Meta and image of a step, kept until the next one."""

    meta: dict[str, Any]
    image: bytes


class Engine:
    """All state of the agent.

    Args:
        on_gone: called once when the X server is gone.
        expect: kinds of windows (``dock``, ``desktop``) that belong to a drawn desktop.
        state_file: where the last sequence number survives a restart of the agent.
        generation: of the replica; a state file of another one does not count.

    Raises:
        OSError: the state file cannot be written.
    """

    def __init__(
        self,
        *,
        on_gone: Callable[[], None],
        expect: frozenset[str] = frozenset(),
        state_file: Path | None = None,
        generation: str = "",
    ) -> None:
        self._on_gone = on_gone
        self._expect = expect
        self._count = CountFile(state_file) if state_file is not None else None
        self._generation = generation
        self._worker = ThreadPoolExecutor(1, "display")
        self._lock = asyncio.Lock()
        self._waiting = 0
        self._screen: Screen | None = None
        self._windows_event = asyncio.Event()
        self._ready = asyncio.Event()
        self._answer: Answer | None = None
        self._current: tuple[int, asyncio.Task[Answer]] | None = None
        self._watch: Watch | None = None
        self._final_waits = False
        self.last_seq = self._count.number(generation) if self._count is not None else 0

    # ---- the display ----

    def attach(self, screen: Screen) -> None:
        """Start to use and watch a display."""
        self._screen = screen
        self._watch = Watch(screen.display, self._windows_event.set, self._on_gone)
        self._watch.resume()

    @property
    def _watching(self) -> Watch:
        if self._watch is None:
            raise HttpError(503, "not_ready", "the X server is not up yet")
        return self._watch

    @property
    def screen(self) -> Screen:
        """The display.

        Raises:
            HttpError: 503 ``not_ready`` while there is none yet.
        """
        if self._screen is None:
            raise HttpError(503, "not_ready", "the X server is not up yet")
        return self._screen

    @property
    def is_ready(self) -> bool:
        """Whether the desktop has been drawn and quiet once."""
        return self._ready.is_set()

    def close(self) -> None:
        """Stop watching and close the display."""
        if self._watch is not None:
            self._watch.pause()
        if self._screen is not None:
            self._screen.stop()
        self._worker.shutdown(wait=True)
        if self._screen is not None:
            self._screen.display.close()
        if self._count is not None:
            self._count.close()

    @asynccontextmanager
    async def _exclusive(self) -> AsyncIterator[Screen]:
        """The display for the worker thread; the watch rests meanwhile."""
        screen = self.screen
        if self._waiting >= MAX_WAITING:
            raise HttpError(429, "busy", f"{MAX_WAITING} calls wait for the display already")
        self._waiting += 1
        try:
            await self._lock.acquire()
        finally:
            self._waiting -= 1
        self._watching.pause()
        try:
            yield screen
        except DisplayGone as exc:
            self._on_gone()
            raise HttpError(503, "display_gone", "the X server is gone") from exc
        finally:
            self._lock.release()
            self._watching.resume()

    async def _in_worker(self, work: Callable[[], T]) -> T:
        """Run blocking work on the display's thread; a caller that is cancelled waits for its end."""
        future = asyncio.get_running_loop().run_in_executor(self._worker, work)
        try:
            return await asyncio.shield(future)
        except asyncio.CancelledError:
            self.screen.display.cancel()
            await asyncio.wait([future])
            raise

    async def use(self, work: Callable[[Screen], T]) -> T:
        """Run blocking work on the display, alone.

        Raises:
            HttpError: 503, 429; 501 when an encoding is not available.
        """
        async with self._exclusive() as screen:
            try:
                return await self._in_worker(lambda: work(screen))
            except ImagingMissing as exc:
                raise HttpError(501, "not_available", str(exc)) from exc

    def set_generation(self, generation: str) -> None:
        """Count on as the replica of another generation."""
        self._generation = generation
        if self._count is not None and self.last_seq > 0:
            self._count.keep(generation, self.last_seq)

    # ---- readiness ----

    async def become_ready(self) -> None:
        """Wait until the window manager and the expected windows are there and the screen is quiet."""
        while not self._ready.is_set():
            self._windows_event.clear()
            wm, _, docks, desktops = await self.use(lambda screen: screen.display.windows())
            if wm and ("dock" not in self._expect or docks) and ("desktop" not in self._expect or desktops):
                await self.use(lambda screen: screen.wait_quiet(READY_QUIET_MS))
                self._ready.set()
                return
            await self._windows_event.wait()

    async def wait_ready(self, timeout_s: float) -> None:
        """Wait until the desktop is drawn, and quiet now.

        Raises:
            HttpError: 504 ``not_ready`` when it is not in time.
        """
        ends = time.monotonic() + timeout_s
        was_ready = self._ready.is_set()
        try:
            await asyncio.wait_for(self._ready.wait(), timeout_s)
        except asyncio.TimeoutError as exc:
            raise HttpError(504, "not_ready", f"the desktop was not ready within {timeout_s:g} s") from exc
        if was_ready:  # it has been used since: what was launched may still be drawing
            left_ms = max(0.0, (ends - time.monotonic()) * 1000)
            settled = await self.use(lambda screen: screen.wait_quiet(left_ms))
            if settled.reason == "timeout":
                raise HttpError(504, "not_ready", f"the desktop was not quiet within {timeout_s:g} s")

    # ---- steps ----

    async def step(self, seq: int, run: Callable[[], Awaitable[Answer]]) -> Answer:
        """Do a step once: repeated numbers get the stored answer.

        Args:
            seq: the last number again, or the next.
            run: does the step; not called for a repeated number.

        Raises:
            HttpError: 409 ``bad_sequence``, ``answer_lost`` or ``busy``.
        """
        if self._current is not None:
            current, task = self._current
            if seq == current:
                return _replayed(await asyncio.shield(task))
            raise HttpError(409, "busy", f"step {current} is still running", {"seq": current})
        if seq == self.last_seq and seq > 0:
            if self._answer is None:
                message = f"the answer of step {seq} was lost when the agent was restarted"
                raise HttpError(409, "answer_lost", message, {"last_seq": self.last_seq})
            return _replayed(self._answer)
        if seq != self.last_seq + 1:
            message = f"step {seq} does not follow step {self.last_seq}"
            raise HttpError(409, "bad_sequence", message, {"last_seq": self.last_seq})
        if self._final_waits and self._screen is not None:
            self._screen.display.cancel()
        task = asyncio.ensure_future(run())
        self._current = (seq, task)
        task.add_done_callback(lambda done: self._step_ended(seq, done))
        return await asyncio.shield(task)

    def _step_ended(self, seq: int, task: asyncio.Task[Answer]) -> None:
        self._current = None
        if not task.cancelled() and task.exception() is None:
            self._answer = task.result()

    async def act(
        self,
        seq: int,
        actions: list[Action],
        raw: list[Mapping[str, Any]],
        settle_options: SettleOptions,
        observe_options: ObserveOptions,
    ) -> Answer:
        """Act, settle, observe (what `step` runs)."""
        began = time.monotonic()

        def work(screen: Screen) -> Answer:
            previous = self._watching.previous()
            self._begin_seq(seq)
            done = screen.act(actions, raw, settle_options)
            frame = screen.observe(observe_options)
            self._watching.answered(seq, frame.taken_ns)
            meta = {
                "seq": seq,
                "replayed": False,
                "results": done.results,
                "failed_index": done.failed_index,
                "settle": settle_meta(settle_options.policy, done.settled),
                "frame": frame.meta,
                "previous": previous,
                "timing_ms": _timing(done.input_ms, done.settled.wait_ms, frame, began),
            }
            return Answer(meta, frame.image)

        return await self.use(work)

    async def observe(self, options: ObserveOptions) -> Answer:
        """A frame as the screen is now."""
        began = time.monotonic()

        def work(screen: Screen) -> Answer:
            previous = self._watching.previous()
            frame = screen.observe(options)
            return Answer(self._plain_meta(frame, previous, None, began), frame.image)

        return await self.use(work)

    async def final(self, seq: int, timeout_ms: float, options: ObserveOptions) -> Answer:
        """The frame after step `seq` once it is final, or when the time is up or a step comes.

        Raises:
            HttpError: 409 ``bad_sequence`` when `seq` is not the last step.
        """
        began = time.monotonic()
        if seq != self.last_seq or self._current is not None:
            message = f"step {seq} is not the last one, which is {self.last_seq}"
            raise HttpError(409, "bad_sequence", message, {"last_seq": self.last_seq})

        def work(screen: Screen) -> Answer:
            watch = self._watching
            watch.previous()
            started = now_ns()
            settled = screen.wait_final(timeout_ms)
            if settled.last_change_ms is not None:
                watch.changed(started + int(settled.last_change_ms * 1e6))
            frame = screen.observe(options)
            meta = self._plain_meta(frame, watch.previous(), settled, began)
            meta["seq"] = seq
            meta["final"] = settled.reason in ("quiet", "unchanged")
            return Answer(meta, frame.image)

        self._final_waits = True
        try:
            return await self.use(work)
        finally:
            self._final_waits = False

    async def release(self) -> dict[str, list[int]]:
        """Let go of every held key and button; what they were."""
        return await self.use(lambda screen: screen.input.release())

    # ---- pieces; on the worker thread ----

    def _plain_meta(
        self, frame: Frame, previous: dict[str, Any] | None, settled: Settled | None, began: float
    ) -> dict[str, Any]:
        return {
            "seq": self.last_seq,
            "replayed": False,
            "results": [],
            "failed_index": None,
            "settle": None if settled is None else settle_meta("exact", settled),
            "frame": frame.meta,
            "previous": previous,
            "timing_ms": _timing(0.0, settled.wait_ms if settled else 0.0, frame, began),
        }

    def _begin_seq(self, seq: int) -> None:
        """From here on the step counts as done, whatever happens."""
        self._answer = None
        self.last_seq = seq
        if self._count is not None:
            self._count.keep(self._generation, seq)


def settle_meta(policy: str, settled: Settled) -> dict[str, Any]:
    """A settle's outcome for the wire."""
    reason = "timeout" if settled.reason == "cancelled" else settled.reason
    change = settled.last_change_ms
    return {
        "policy": policy,
        "reason": reason,
        "wait_ms": round(settled.wait_ms, 3),
        "last_change_ms": None if change is None else round(change, 3),
    }


def _timing(input_ms: float, settle_ms: float, frame: Frame, began: float) -> dict[str, float]:
    return {
        "input": round(input_ms, 3),
        "settle": round(settle_ms, 3),
        "capture": round(frame.capture_ms, 3),
        "encode": round(frame.encode_ms, 3),
        "total": round((time.monotonic() - began) * 1e3, 3),
    }


def _replayed(answer: Answer) -> Answer:
    return Answer({**answer.meta, "replayed": True}, answer.image)


def open_screen(name: str | None, fbdir: str | None, make: Callable[[Display], Screen]) -> Screen:
    """Connect and read the first state.

    Raises:
        DisplayGone: there is no X server (yet).
        DisplayError: it lacks what is needed.
    """
    display = Display(name, fbdir)
    try:
        return make(display)
    except BaseException:
        display.close()
        raise
