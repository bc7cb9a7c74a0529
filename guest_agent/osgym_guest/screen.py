"""Display of the agent: actions, settling and frames, by one thread at a time."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace

from osgym_guest._native import Display, now_ns
from osgym_guest.input import Input
from osgym_guest.keyboard import KeyboardError
from osgym_guest.settle import Policies, SettleOutcome, SettleRule, settle, with_options
from osgym_guest.typing_pace import TextReader
from osgym_protocol.actions import Action, Key, KeyState, Screenshot, Type, Wait, op_of, points_of
from osgym_protocol.codes import GuestErrorCode, ImageFormat, SettlePolicy, assert_never
from osgym_protocol.limits import DEFAULT_IMAGE_QUALITY, DEFAULT_SETTLE_MAX_MS
from osgym_protocol.observation import ActionResult, ErrorInfo, FrameInfo
from osgym_protocol.options import ObserveOptions, SettleOptions
from osgym_protocol.settle_table import kind_of

DRAIN_MS = 1000.0
BETWEEN_MS = 1000.0
MAX_CPU_CONTENTION = 10.0
DIALOG_MS = 3000.0
"""Time for a dialog's timer. A timer of 150 ms took over a second with twenty busy processes beside it."""
DIALOG_TOTAL_MS = 6000.0
"""Total time per step for the timers of dialogs; an animation in a dialog never ends."""

KNOWN_FRAMES = 64
"""Number of sent frames for which a change of the panel alone is told from other changes."""

RULE_OF = {
    SettlePolicy.EXACT: "exact",
    SettlePolicy.FAST: "fast",
    SettlePolicy.CERTAIN: "final",
    SettlePolicy.FIXED: "exact",
}
"""Rule of `settle.json` that each policy follows; a fixed pause follows none."""


class ImagingMissing(RuntimeError):
    """An encoding or size needs Pillow, which is not installed."""


@dataclass(frozen=True)
class CapturedFrame:
    """A captured frame: its metadata and the encoded image."""

    info: FrameInfo
    image: bytes
    taken_ns: int
    capture_ms: float
    encode_ms: float


@dataclass(frozen=True)
class ActionsOutcome:
    """Outcome of a list of actions."""

    results: list[ActionResult]
    failed_index: int | None
    settled: SettleOutcome
    input_ms: float


class ScreenController:
    """Acts, settles and observes on one display. Blocking; callers run it on one thread at a time.

    Args:
        display: Open display.
        policies: Settle policies.
        trace: File to which each settle's signals are appended, for measurements.
    """

    def __init__(self, display: Display, policies: Policies, trace: str | None = None) -> None:
        self.display = display
        self._policies = policies
        self._trace = trace
        self.input = Input(display, self._drained, TextReader(self._look_at_reader, self._wait_read))
        self._started_ns = now_ns()
        self._dialog_left_ms = DIALOG_TOTAL_MS
        self._unmasked_hashes: dict[str, str] = {}
        """Hash outside the panels by hash of the frame, the oldest first."""
        display.follow(policies.burner_s, policies.burner_share, list(policies.threads))
        display.begin()

    def stop(self) -> None:
        """Interrupt the work on the display, at the end of the agent."""
        self.input.stopping.set()
        self.display.cancel()

    def act(self, actions: list[Action], options: SettleOptions) -> ActionsOutcome:
        """Execute the actions up to the first that fails, then settle."""
        began = now_ns()
        self.display.begin()
        results: list[ActionResult] = []
        failed: int | None = None
        unsettled = False
        self._dialog_left_ms = DIALOG_TOTAL_MS
        for index, action in enumerate(actions):
            if self.input.stopping.is_set():
                break
            if unsettled and not isinstance(action, (Wait, Screenshot)):
                self._between(actions[index - 1])
            try:
                self.input.perform(action, actions[index + 1] if index + 1 < len(actions) else None)
            except KeyboardError as exc:
                error = ErrorInfo(GuestErrorCode.INVALID_ACTION, str(exc))
                results.append(ActionResult(False, op_of(action), error))
                failed = index
                break
            unsettled = not isinstance(action, (Wait, Screenshot))
            results.append(ActionResult(True, op_of(action)))
        ended = now_ns()
        rule = self._rule(options, actions)
        if self.input.stopping.is_set():
            rule = replace(rule, max_ms=0.0, pause_ms=-1.0)
        settled = settle(self.display, rule, ended, self._trace)
        return ActionsOutcome(results, failed, settled, (ended - began) / 1e6)

    def shows(self, digest: str, actions: list[Action]) -> bool:
        """Return whether the screen shows the frame with this hash.

        A panel may have changed since, unless an action points at it: its clock changes by itself.
        """
        self.display.capture()
        if self.display.frame_hash() == digest:
            return True
        known = self._unmasked_hashes.get(digest)
        if known is None:
            return False
        self.display.begin()  # finds the panels
        if any(self.display.masks(*place) for action in actions for place in points_of(action)):
            return False
        return self.display.frame_hash_unmasked() == known

    def observe(self, options: ObserveOptions) -> CapturedFrame:
        """Capture the screen and encode the image that was asked for.

        Raises:
            ImagingMissing: Pillow is needed and absent.
        """
        start = now_ns()
        self.display.capture()
        taken = now_ns()
        digest = self.display.frame_hash()
        self._unmasked_hashes.pop(digest, None)
        self._unmasked_hashes[digest] = self.display.frame_hash_unmasked()
        if len(self._unmasked_hashes) > KNOWN_FRAMES:
            del self._unmasked_hashes[next(iter(self._unmasked_hashes))]
        unchanged = options.unless_hash == digest
        captured = now_ns()
        width, height = self.display.size()
        image = b""
        if unchanged:
            width, height = options.image_size(self.display.size())
        elif options.format is not ImageFormat.NONE:
            image, width, height = _encode(self.display, options)
        encoded = now_ns()
        info = FrameInfo(
            hash=digest,
            format=options.format,
            width=width,
            height=height,
            screen=self.display.size(),
            unchanged=unchanged,
            t_ms=round((taken - self._started_ns) / 1e6, 3),
        )
        return CapturedFrame(info, image, taken, (captured - start) / 1e6, (encoded - captured) / 1e6)

    def wait_final(self, max_ms: float) -> SettleOutcome:
        """Settle by the rule for final frames, from now on."""
        self.display.begin()
        return settle(self.display, self._limited("final", max_ms), now_ns(), self._trace)

    def wait_quiet(self, max_ms: float) -> SettleOutcome:
        """Settle by the rule for desktops at rest, from now on."""
        self.display.begin()
        return settle(self.display, self._limited("ready", max_ms), now_ns())

    def _rule(self, options: SettleOptions, actions: list[Action]) -> SettleRule:
        is_fixed = options.policy is SettlePolicy.FIXED
        rule = self._policies.rules[RULE_OF[options.policy]]
        if options.policy is SettlePolicy.EXACT:
            rule = self._policies.exact_by_kind.get(kind_of(actions), rule)
        return with_options(
            rule,
            quiet_ms=options.quiet_ms,
            max_ms=DEFAULT_SETTLE_MAX_MS if options.max_ms is None else options.max_ms,
            pause_ms=options.pause_ms if is_fixed else None,
        )

    def _limited(self, name: str, max_ms: float) -> SettleRule:
        return with_options(self._policies.rules[name], quiet_ms=None, max_ms=max_ms, pause_ms=None)

    def _between(self, before: Action) -> None:
        """Wait between two actions of a list until the applications have processed the first."""
        self._follow("between", BETWEEN_MS, after_keys=isinstance(before, (Type, Key, KeyState)))

    def _drained(self) -> None:
        """Wait likewise within an action, with a tighter bound."""
        self.display.sync()
        self._follow("between", DRAIN_MS)

    def _wait_read(self, max_s: float) -> None:
        """Wait within a text until the keys typed so far were read and processed."""
        self.display.sync()
        self._follow("typed", max_s * 1000, after_keys=True)

    def _look_at_reader(self) -> tuple[int, bool]:
        """Return the active window, and whether it is a dialog, a terminal or LibreOffice's."""
        window, is_dialog, is_awaited = self.display.receiver()
        return window, is_dialog or is_awaited

    def _follow(self, name: str, max_ms: float, *, after_keys: bool = False) -> None:
        """Wait until the applications have processed the input so far.

        Dialogs complete names and check them by timers after the last key, so these timers are waited for as
        well: GTK's file dialog loses an Enter that comes within some 150 ms of the name.

        Args:
            name: Name of the rule.
            max_ms: Bound of the wait, without the timers of dialogs.
            after_keys: The input was typed.
        """
        rule = self._limited(name, max_ms)
        in_dialog = after_keys and self._dialog_left_ms > 0 and self.display.receiver()[1]
        if in_dialog:
            rule = self._limited("dialog", min(DIALOG_MS, self._dialog_left_ms))
        elif name == "typed":
            rule = replace(rule, idle_ms=rule.idle_ms * cpu_contention())
        began_ns = now_ns()
        settle(self.display, rule, began_ns)
        if in_dialog:
            self._dialog_left_ms -= (now_ns() - began_ns) / 1e6


def cpu_contention() -> float:
    """Return the number of runnable threads per processor of the machine, from 1 to `MAX_CPU_CONTENTION`.

    A key may wake up the kernel's own thread between a terminal and its shell, which waits behind them and
    shows up nowhere, so the quiet time has to be longer.
    """
    try:
        with open("/proc/loadavg", "rb") as file:  # noqa: PTH123 (no pathlib on this way)
            wanting = int(file.read().split()[3].split(b"/")[0])
    except (OSError, ValueError, IndexError):
        return 1.0
    return min(MAX_CPU_CONTENTION, max(1.0, wanting / (os.cpu_count() or 1)))


def _encode(display: Display, options: ObserveOptions) -> tuple[bytes, int, int]:
    """Return the last captured frame as an image file, its width and height.

    Raises:
        ImagingMissing: Pillow is needed and absent.
    """
    screen = display.size()
    x, y, width, height = options.region or (0, 0, *screen)
    size = options.size or (width, height)
    if options.format is ImageFormat.PNG and size == (width, height):
        whole = (width, height) == screen
        return (display.png() if whole else display.png(x, y, width, height)), width, height
    try:
        from PIL import Image
    except ImportError as exc:
        raise ImagingMissing(f"{options.format} of size {size} needs Pillow") from exc
    from io import BytesIO

    pixels = display.pixels(x, y, width, height)
    image = Image.frombuffer("RGB", (width, height), pixels, "raw", "BGRX", 0, 1)
    if size != (width, height):
        image = image.resize(size, Image.Resampling.LANCZOS, reducing_gap=2.0)
    out = BytesIO()
    quality = DEFAULT_IMAGE_QUALITY if options.quality is None else options.quality
    match options.format:
        case ImageFormat.PNG:
            image.save(out, "PNG", compress_level=1)
        case ImageFormat.JPEG:
            image.save(out, "JPEG", quality=quality)
        case ImageFormat.WEBP:
            image.save(out, "WEBP", quality=quality, method=2)
        case ImageFormat.NONE:
            raise ValueError("the request asks for no image")
        case _:
            assert_never(options.format)
    return out.getvalue(), size[0], size[1]
