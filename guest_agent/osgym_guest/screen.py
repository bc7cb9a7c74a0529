"""The display and all that is done on it, by one thread at a time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from osgym_guest import images
from osgym_guest._native import Display, now_ns
from osgym_guest.input import Input
from osgym_guest.keyboard import KeyboardError
from osgym_guest.options import ObserveOptions, SettleOptions
from osgym_guest.policy import Policies, Rule, Settled, settle, with_options
from osgym_guest.protocol import ActionResult, GuestErrorCode
from osgym_guest.protocol.actions import Action, Screenshot, Wait

DRAIN_MS = 1000.0
BETWEEN_MS = 1000.0
QUIET_TURN_MS = 10.0


@dataclass(frozen=True)
class Frame:
    """A captured frame: its meta and the encoded image."""

    meta: dict[str, Any]
    image: bytes
    taken_ns: int
    capture_ms: float
    encode_ms: float


@dataclass(frozen=True)
class Done:
    """What a list of actions came to."""

    results: list[ActionResult]
    failed_index: int | None
    settled: Settled
    input_ms: float


class Screen:
    """Act, settle and observe on one display. Blocking; callers run it on one thread at a time.

    Args:
        display: the open display.
        policies: how to settle.
        trace: a file to which each settle's signals are added, for measurements.
    """

    def __init__(self, display: Display, policies: Policies, trace: str | None = None) -> None:
        self.display = display
        self._policies = policies
        self._trace = trace
        self.input = Input(display, self._drained)
        self._started_ns = now_ns()
        display.follow(policies.burner_s, policies.burner_share, list(policies.threads))
        display.begin()

    def stop(self) -> None:
        """End what runs on the display soon; for the end of the agent."""
        self.input.stopping.set()
        self.display.cancel()

    def act(self, actions: list[Action], raw: list[Mapping[str, Any]], options: SettleOptions) -> Done:
        """Do the actions up to the first that fails, then settle."""
        began = now_ns()
        self.display.begin()
        results: list[ActionResult] = []
        failed: int | None = None
        unsettled = False
        for index, (action, source) in enumerate(zip(actions, raw)):  # noqa: B905 - parsed from it
            if self.input.stopping.is_set():
                break
            if unsettled and not isinstance(action, (Wait, Screenshot)):
                self._between()
            try:
                self.input.perform(action)
            except KeyboardError as exc:
                error = {"code": GuestErrorCode.INVALID_ACTION.value, "message": str(exc)}
                results.append({"ok": False, "op": source["op"], "error": error})  # type: ignore[typeddict-item] # literal keys
                failed = index
                break
            unsettled = not isinstance(action, (Wait, Screenshot))
            results.append({"ok": True, "op": source["op"]})
        ended = now_ns()
        rule = self._rule(options)
        if self.input.stopping.is_set():
            rule = replace(rule, max_ms=0.0, pause_ms=-1.0)
        settled = settle(self.display, rule, ended, self._trace)
        return Done(results, failed, settled, (ended - began) / 1e6)

    def observe(self, options: ObserveOptions) -> Frame:
        """Capture the screen and encode what was asked for."""
        start = now_ns()
        self.display.capture()
        taken = now_ns()
        digest = self.display.frame_hash()
        unchanged = options.unless_hash == digest
        captured = now_ns()
        width, height = self.display.size()
        image = b""
        if not unchanged and options.format != "none":
            image, width, height = images.encode(self.display, options)
        encoded = now_ns()
        meta = {
            "hash": digest,
            "format": options.format,
            "width": width,
            "height": height,
            "screen": list(self.display.size()),
            "unchanged": unchanged,
            "t_ms": round((taken - self._started_ns) / 1e6, 3),
        }
        return Frame(meta, image, taken, (captured - start) / 1e6, (encoded - captured) / 1e6)

    def wait_final(self, max_ms: float) -> Settled:
        """Settle by the rule for final frames, from now on."""
        self.display.begin()
        return settle(self.display, self._limited("final", max_ms), now_ns(), self._trace)

    def wait_quiet(self, max_ms: float) -> Settled:
        """Settle by the exact rule, from now on, looking less often: nobody counts these milliseconds."""
        self.display.begin()
        rule = self._limited("exact", max_ms)
        return settle(self.display, replace(rule, turn_ms=max(rule.turn_ms, QUIET_TURN_MS)), now_ns())

    def _rule(self, options: SettleOptions) -> Rule:
        name = "exact" if options.policy == "fixed" else options.policy
        return with_options(
            self._policies.rules[name],
            quiet_ms=options.quiet_ms,
            max_ms=options.max_ms,
            pause_ms=options.pause_ms,
        )

    def _limited(self, name: str, max_ms: float) -> Rule:
        return with_options(self._policies.rules[name], quiet_ms=None, max_ms=max_ms, pause_ms=None)

    def _between(self) -> None:
        """Between two actions of a list: until the first has been worked off."""
        settle(self.display, self._limited("between", BETWEEN_MS), now_ns())

    def _drained(self) -> None:
        """Within an action: the same, with a tighter bound."""
        self.display.sync()
        settle(self.display, self._limited("between", DRAIN_MS), now_ns())
