"""Driver of one replica: starts an application, finds its window, records or judges actions."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from dataclasses import dataclass
from typing import Any

from osgym_host.calibration.applications import LIST_SCRIPT, FoundApplication, find_applications
from osgym_host.calibration.exploration import FOLDER, Area
from osgym_host.calibration.replay import Rule, Trace, is_sound, lay_over, read_rule, read_traces
from osgym_host.errors import OsgymHostError
from osgym_host.guest_client.answers import GuestRefused
from osgym_host.guest_client.client import GuestClient
from osgym_host.images.errors import ImageError
from osgym_protocol.codes import ImageFormat
from osgym_protocol.observation import ObservedFrame
from osgym_protocol.options import ObserveOptions
from osgym_protocol.reach import Window

TRACE = "/tmp/osgym-settle-trace.jsonl"  # noqa: S108 (in the replica)
MAX_TRACE_BYTES = 32 << 20
RECORDED_MS = 2500
"""Duration of a recording after an action: three times the longest horizon that may be chosen."""
STEP_TIMEOUT_S = 60.0
SHORT_S = 20.0
LAUNCH_S = 40.0
QUIET_S = 20.0
LOOK_S = 0.25
_NO_IMAGE = ObserveOptions(ImageFormat.NONE)
_SETTINGS = (
    "cat /usr/local/lib/python3*/dist-packages/osgym_guest/data/settle.json && printf '\\036' && "
    "if test -e /etc/osgym/settle.json; then cat /etc/osgym/settle.json; else echo '{}'; fi"
)


class ExplorationFailed(OsgymHostError):
    """An application cannot be explored; the message has the reason."""


@dataclass(frozen=True, slots=True)
class Judged:
    """Answer of `exact`: its wait, and whether the screen changed afterwards."""

    wait_ms: float
    premature: bool


class ExploredDesktop:
    """A replica whose guest agent writes down its signals.

    Every method raises `GuestError` when the guest does not answer in time or correctly.
    """

    def __init__(self, guest: GuestClient) -> None:
        self._guest = guest
        self._seq = 0

    async def rule(self) -> Rule:
        """Return `exact` as this image has it.

        Raises:
            ImageError: The guest agent's settings cannot be read.
        """
        done = await self._guest.run_bash_script(_SETTINGS, run_timeout_s=SHORT_S)
        own, _, overlay = done.output.partition("\x1e")
        try:
            settings = json.loads(own)
            lay_over(settings, json.loads(overlay))
            return read_rule(settings, "exact")
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as exc:
            hint = "bake the image again with osgym image build"
            raise ImageError(
                f"the image's guest agent has no settings that can be read: {exc}", hint
            ) from exc

    async def applications(self) -> list[FoundApplication]:
        done = await self._guest.run_bash_script(LIST_SCRIPT, run_timeout_s=SHORT_S)
        return find_applications(done.output)

    async def open(self, application: FoundApplication) -> None:
        """Start it and wait for its window, maximized.

        Raises:
            ExplorationFailed: No window came.
        """
        await self._guest.execute(["mkdir", "-p", FOLDER], timeout_s=SHORT_S)
        await self._guest.upload(f"{FOLDER}/note.txt", b"A note to open.\n" * 40, timeout_s=SHORT_S)
        await self._guest.launch(list(application.command), timeout_s=SHORT_S)
        deadline = time.monotonic() + LAUNCH_S
        while await self._window() is None:
            if time.monotonic() > deadline:
                raise ExplorationFailed(f"no window appeared within {LAUNCH_S:g} s")
            await asyncio.sleep(LOOK_S)
        await self._quiet()
        await self.focus()

    async def focus(self) -> Area | None:
        """Focus the application's window and return its place, or None when it has none."""
        window = await self._window()
        if window is None:
            return None
        name = hex(window.id)
        maximize = ["wmctrl", "-ir", name, "-b", "add,maximized_vert,maximized_horz"]
        await self._guest.execute(["wmctrl", "-ia", name], timeout_s=SHORT_S)
        await self._guest.execute(maximize, timeout_s=SHORT_S)
        await self._quiet()
        shown = await self._window()
        if shown is None:
            return None
        return Area(shown.x_px, shown.y_px, shown.width_px, shown.height_px)

    async def record(self, action: dict[str, Any]) -> Trace:
        """Act, and return the signals of the time after it.

        Raises:
            ExplorationFailed: The guest wrote none.
        """
        await self._guest.execute(["sh", "-c", f": > {TRACE}"], timeout_s=SHORT_S)
        await self._step(action, {"policy": "fixed", "pause_ms": RECORDED_MS})
        body = await self._guest.file(TRACE, max_bytes=MAX_TRACE_BYTES, timeout_s=SHORT_S)
        lines = bytes(body).decode("utf-8", "replace").splitlines()
        try:
            traces = [trace for trace in read_traces(lines) if is_sound(trace)]
        except (ValueError, TypeError, KeyError, IndexError, AttributeError, RecursionError) as exc:
            raise ExplorationFailed(
                f"the recording of its signals is malformed: {type(exc).__name__}"
            ) from exc
        if not traces or not traces[-1].turns:
            raise ExplorationFailed(
                "its signals were not recorded; bake the image again with osgym image build"
            )
        return traces[-1]

    async def judge(self, action: dict[str, Any]) -> Judged:
        """Act under `exact`, and see whether the screen changes after the answer."""
        shown = await self._step(action, {"policy": "exact"})
        await asyncio.sleep(RECORDED_MS / 1000)
        later = await self._guest.observe(_NO_IMAGE)
        settle, previous = shown.observation.settle, later.observation.previous
        if settle is None or previous is None:
            raise ExplorationFailed("the guest agent did not report how it waited")
        return Judged(settle.wait_ms, not previous.final)

    async def _step(self, action: dict[str, Any], settle: dict[str, Any]) -> ObservedFrame:
        self._seq += 1
        return await self._guest.step(
            self._seq, [action], settle=settle, observe=_NO_IMAGE, timeout_s=STEP_TIMEOUT_S
        )

    async def _window(self) -> Window | None:
        """Return the window that has the focus, else the newest."""
        answer = await self._guest.reach.windows()
        windows = [each for each in answer.windows if each.ordinary and not each.minimized]
        focused = [each for each in windows if each.focused]
        chosen = focused or windows
        return chosen[-1] if chosen else None

    async def _quiet(self) -> None:
        """Wait until the screen rests; one that never does is explored all the same."""
        with contextlib.suppress(GuestRefused):
            await self._guest.ready(timeout_s=QUIET_S)
