"""State of the agent: steps with sequence numbers, the watch between steps, and readiness.

One thread at a time uses the display: a thread of its own while there is work for it, else the event loop,
which wakes only when the X server reports a change.
"""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from queue import SimpleQueue
from typing import Any, TypeVar

from osgym_guest._native import Display, DisplayGone, now_ns
from osgym_guest.display_watchdog import DisplayWatchdog
from osgym_guest.frame_watch import FrameWatch
from osgym_guest.http import HttpError
from osgym_guest.screen import CapturedFrame, ImagingMissing, ScreenController
from osgym_guest.sequence_file import SequenceFile
from osgym_guest.settle import SettleOutcome
from osgym_protocol.actions import Action
from osgym_protocol.codes import GuestErrorCode, SettlePolicy, SettleReason
from osgym_protocol.ledger import StepLedger
from osgym_protocol.observation import Observation, ObservedFrame, PreviousFrame, SettleInfo
from osgym_protocol.options import ObserveOptions, SettleOptions

T = TypeVar("T")

MAX_WAITING = 16
READY_QUIET_MS = 10_000.0


@dataclass(frozen=True)
class CheckedStep:
    """One step after its checks.

    Attributes:
        expects: Hash of the frame that the screen must show for the actions to be done; None: any.
        hold: Called when the screen has settled, before the frame is taken: holds the clocks.
    """

    seq: int
    actions: list[Action]
    settle: SettleOptions
    observe: ObserveOptions
    expects: str | None = None
    hold: Callable[[], None] | None = None


class Engine:
    """State of the agent and owner of the display.

    Args:
        on_gone: Called once when the X server has ended.
        expect: Kinds of windows (``dock``, ``desktop``) that a drawn desktop has.
        state_file: File that keeps the last sequence number over a restart of the agent.
        generation: Generation of the replica. The state file of another generation is ignored.

    Attributes:
        steps: Ledger of the steps, whose entries are futures of their answers.

    Raises:
        OSError: The state file cannot be written.
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
        self._kept = SequenceFile(state_file) if state_file is not None else None
        self._generation = generation
        self._loop = asyncio.get_running_loop()
        self._jobs: SimpleQueue[tuple[asyncio.Future[Any], Callable[[ScreenController], Any]] | None]
        self._jobs = SimpleQueue()
        self._unfinished = 0
        self._thread: threading.Thread | None = None
        self._screen: ScreenController | None = None
        self._windows_event = asyncio.Event()
        self._ready = asyncio.Event()
        self._final_waits = False
        self._watchdog = DisplayWatchdog(self._display_silent)
        self._silent = False
        self._closed = False
        self.steps = StepLedger[asyncio.Future[ObservedFrame]](
            self._kept.number(generation) if self._kept is not None else 0
        )

    # ---- the display ----

    def attach(self, screen: ScreenController) -> None:
        """Start to use and watch a display."""
        self._screen = screen
        self._watch = FrameWatch(screen.display, self._windows_event.set, self._on_gone)
        self._watch.resume()
        self._thread = threading.Thread(target=self._work, args=(screen,), name="display", daemon=True)
        self._thread.start()

    @property
    def screen(self) -> ScreenController:
        """Display of the agent. Raises HttpError: 503 ``not_ready`` before the desktop is ready."""
        if self._screen is None:
            raise HttpError(503, GuestErrorCode.NOT_READY, "the X server is not up yet")
        return self._screen

    @property
    def is_ready(self) -> bool:
        """Whether the desktop has been drawn and quiet at least once."""
        return self._ready.is_set()

    def close(self) -> None:
        """Stop watching, interrupt running work and close the display.

        A server that does not answer is not waited for: the display's thread ends with the process.
        """
        self._closed = True
        self._watchdog.stop()
        if self._screen is not None and self._thread is not None and not self._silent:
            self._watch.pause()
            self._screen.stop()
            self._jobs.put(None)
            self._thread.join()
            self._screen.display.close()
        if self._kept is not None:
            self._kept.close()

    def use(self, work: Callable[[ScreenController], T]) -> asyncio.Future[T]:
        """Run blocking work on the display's thread, after the work queued before.

        The thread is not from `ThreadPoolExecutor`, which takes half as long again for each step (150 µs of
        CPU against
        """
        future = self._admit()
        self._jobs.put((future, work))
        return future

    def _admit(self) -> asyncio.Future[Any]:
        """Return the future of a job that is about to be queued."""
        if self._screen is None:
            raise HttpError(503, GuestErrorCode.NOT_READY, "the X server is not up yet")
        if self._unfinished > MAX_WAITING:
            raise HttpError(429, GuestErrorCode.BUSY, f"{MAX_WAITING} calls already wait for the display")
        if not self._unfinished:
            self._watch.pause()
            self._watchdog.start()
        self._unfinished += 1
        return self._loop.create_future()

    def _work(self, screen: ScreenController) -> None:
        while (job := self._jobs.get()) is not None:
            future, work = job
            result, error = None, None
            try:
                if not future.cancelled():
                    result = work(screen)
            except BaseException as exc:  # noqa: BLE001  # raised where the result is awaited
                error = exc
            self._loop.call_soon_threadsafe(self._finish, future, result, error)

    def _finish(self, future: asyncio.Future[Any], result: Any, error: BaseException | None) -> None:
        self._unfinished -= 1
        if isinstance(error, DisplayGone):
            self._on_gone()
            error = HttpError(503, GuestErrorCode.DISPLAY_GONE, "the X server has ended")
        elif isinstance(error, ImagingMissing):
            error = HttpError(501, GuestErrorCode.NOT_AVAILABLE, str(error))
        if not self._unfinished:
            self._watchdog.stop()
            if not self._closed:  # work that the end cut short finishes when its display is closed already
                self._watch.resume()
        if future.cancelled():
            return
        if error is None:
            future.set_result(result)
        else:
            future.set_exception(error)

    def _display_silent(self) -> None:
        """Report an X server that does not answer, as if it had ended."""
        self._silent = True
        print("osgym_guest: the X server does not answer", file=sys.stderr)
        self._on_gone()

    def set_generation(self, generation: str) -> None:
        """Continue as the replica of another generation."""
        self._generation = generation
        if self._kept is not None and self.steps.last_seq > 0:
            self._kept.keep(generation, self.steps.last_seq)

    # ---- for the OSWorld endpoints (`osworld.context.Desktop`) ----

    async def screenshot_png(self) -> bytes:
        """Return the screen now, with the cursor drawn in, as a PNG file."""
        return bytes((await self.observe(ObserveOptions())).image)

    def screen_size(self) -> tuple[int, int]:
        """Return width and height in pixels."""
        return self.screen.display.size()

    async def cursor_position(self) -> tuple[int, int]:
        """Return where the pointer is, in pixels."""
        x, y, _ = await self.use(lambda screen: screen.display.pointer())
        return x, y

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
        """Wait until the desktop is drawn and quiet.

        Raises:
            HttpError: 504 ``not_ready`` after the timeout.
        """
        ends = time.monotonic() + timeout_s
        was_ready = self._ready.is_set()
        try:
            await asyncio.wait_for(self._ready.wait(), timeout_s)
        except asyncio.TimeoutError as exc:
            raise HttpError(
                504, GuestErrorCode.NOT_READY, f"the desktop was not ready within {timeout_s:g} s"
            ) from exc
        if was_ready:  # it has been used since: what was launched may still be drawing
            left_ms = max(0.0, (ends - time.monotonic()) * 1000)
            settled = await self.use(lambda screen: screen.wait_quiet(left_ms))
            if settled.reason == "timeout":
                raise HttpError(
                    504, GuestErrorCode.NOT_READY, f"the desktop was not quiet within {timeout_s:g} s"
                )

    # ---- steps ----

    def step(self, request: CheckedStep) -> asyncio.Future[ObservedFrame]:
        """Act, settle and observe as the next step of `steps`.

        Returns:
            Future of the answer. Shield it when awaiting: a step continues when its caller is gone.
        """
        if self._final_waits:
            self.screen.display.cancel()
        began = time.monotonic()
        future = self._admit()
        self.steps.start(request.seq, future)  # before its thread may take the number
        future.add_done_callback(
            lambda step: self.steps.end(answered=not step.cancelled() and step.exception() is None)
        )
        self._jobs.put((future, lambda screen: self._step(screen, request, began)))
        return future

    def _step(self, screen: ScreenController, request: CheckedStep, began: float) -> ObservedFrame:
        """Run a step on the display's thread."""
        previous = self._watch.previous()
        # From here on the step counts as done, whatever happens.
        self.steps.take(request.seq)
        if self._kept is not None:
            self._kept.keep(self._generation, request.seq)
        changed = request.expects is not None and not screen.shows(request.expects, request.actions)
        done = screen.act([] if changed else request.actions, request.settle)
        if request.hold is not None:
            request.hold()
        frame = screen.observe(request.observe)
        self._watch.answered(request.seq, frame.taken_ns)
        observation = Observation(
            frame=frame.info,
            seq=request.seq,
            screen_changed=changed,
            results=tuple(done.results),
            failed_index=done.failed_index,
            settle=_settle_info(request.settle.policy, done.settled),
            previous=previous,
            final=_is_final(done.settled) if request.settle.policy is SettlePolicy.CERTAIN else None,
            timing_ms=_timing(done.input_ms, done.settled.wait_ms, frame, began),
        )
        return ObservedFrame(observation, frame.image)

    async def observe(self, options: ObserveOptions) -> ObservedFrame:
        """Return a frame of the screen now."""
        began = time.monotonic()

        def work(screen: ScreenController) -> ObservedFrame:
            previous = self._watch.previous()
            frame = screen.observe(options)
            return ObservedFrame(self._plain(frame, previous, None, began), frame.image)

        return await self.use(work)

    async def final(
        self, seq: int, timeout_ms: float, options: ObserveOptions, hold: Callable[[], None] | None = None
    ) -> ObservedFrame:
        """Return the frame after the last step: when final, at the timeout, or when another step begins.

        Args:
            hold: As in `CheckedStep`; not called when another step begins.
        """
        began = time.monotonic()

        def work(screen: ScreenController) -> ObservedFrame:
            self._watch.previous()
            started = now_ns()
            settled = screen.wait_final(timeout_ms)
            if settled.last_change_ms is not None:
                self._watch.changed(started + int(settled.last_change_ms * 1e6))
            if hold is not None and settled.reason != "cancelled":
                hold()
            frame = screen.observe(options)
            observation = self._plain(frame, self._watch.previous(), settled, began)
            return ObservedFrame(replace(observation, seq=seq, final=_is_final(settled)), frame.image)

        self._final_waits = True
        try:
            return await self.use(work)
        finally:
            self._final_waits = False

    async def release(self) -> dict[str, list[int]]:
        """Release every held key and button, and return them."""
        return await self.use(lambda screen: screen.input.release())

    def _plain(
        self,
        frame: CapturedFrame,
        previous: PreviousFrame | None,
        settled: SettleOutcome | None,
        began: float,
    ) -> Observation:
        return Observation(
            frame=frame.info,
            seq=self.steps.last_seq,
            settle=None if settled is None else _settle_info(SettlePolicy.CERTAIN, settled),
            previous=previous,
            timing_ms=_timing(0.0, settled.wait_ms if settled else 0.0, frame, began),
        )


def _settle_info(policy: SettlePolicy, settled: SettleOutcome) -> SettleInfo:
    """Return the description of a wait for the answer."""
    reason = SettleReason.TIMEOUT if settled.reason == "cancelled" else SettleReason(settled.reason)
    change = settled.last_change_ms
    return SettleInfo(policy, reason, round(settled.wait_ms, 3), None if change is None else round(change, 3))


def _is_final(settled: SettleOutcome) -> bool:
    return settled.reason in ("quiet", "unchanged")


def _timing(input_ms: float, settle_ms: float, frame: CapturedFrame, began: float) -> dict[str, float]:
    return {
        "input": round(input_ms, 3),
        "settle": round(settle_ms, 3),
        "capture": round(frame.capture_ms, 3),
        "encode": round(frame.encode_ms, 3),
        "total": round((time.monotonic() - began) * 1e3, 3),
    }


def open_screen(
    name: str | None, fbdir: str | None, make: Callable[[Display], ScreenController]
) -> ScreenController:
    """Connect to the X server and read the display's first state.

    Raises:
        DisplayGone: No X server listens (yet).
        DisplayError: The X server lacks an extension that the agent needs.
    """
    display = Display(name, fbdir)
    try:
        return make(display)
    except BaseException:
        display.close()
        raise
