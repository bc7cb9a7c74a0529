"""Plans of input: checked actions to events for the machine's devices. Pure.

The queues of emulated keyboards and pointers are short and drop what does not fit (PS/2: 16 bytes, USB:
16 reports), and a pointer's movements that the guest has not fetched are merged. So what is sent is cut
into small parts with a `DrainInput` after each: whoever carries the plan out waits there until the guest has
worked off what it got.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import assert_never

from osgym_protocol import actions as act
from osgym_protocol.keysyms import ACTING
from osgym_protocol.pointer import drag_motions
from osgym_qemu.agentless import keys
from osgym_qemu.agentless.keys import SHIFT, Keystroke, Untypable

BUTTON_NAMES = {1: "left", 2: "middle", 3: "right", 8: "side", 9: "extra"}
"""Names of QEMU's `InputButton` by X button numbers, as actions have them."""
WHEEL_UP, WHEEL_DOWN = "wheel-up", "wheel-down"
ACTED_REST_MS = 10.0
"""Rest of a guest after a key that does something, before further text is typed."""
SUBMIT_REST_MS = 220.0
"""Rest between a text and the key that ends it: dialogs complete names by timers of some 150 ms after the
last key (GTK's loses an Enter that comes before), and timers cannot be seen from outside."""
QUEUE_BYTES = 12
"""Bytes of a keyboard's queue of 16 that are used before the guest gets time to read it."""
WHEEL_BURST = 8

TABLET_BUTTONS = frozenset(("left", "middle", "right"))
"""Buttons in the reports of QEMU's USB tablet: three buttons and one wheel."""


class UnsupportedInput(ValueError):
    """Error for an action that the machine's devices cannot do."""

    def __init__(self, message: str, index: int = 0) -> None:
        super().__init__(message)
        self.index = index


@dataclass(frozen=True, slots=True)
class KeyEvent:
    qcode: str
    down: bool


@dataclass(frozen=True, slots=True)
class ButtonEvent:
    """Press or release of a button; clicks of the wheel are such pairs too."""

    button: str
    down: bool


@dataclass(frozen=True, slots=True)
class PointerEvent:
    """Move of the pointer, in pixels."""

    x: int
    y: int


@dataclass(frozen=True, slots=True)
class DrainInput:
    """Wait until the guest has processed the sent input.

    Attributes:
        pointer: True after input of the pointer, whose reports the guest fetches by polling.
        rest_ms: Time for which the guest must have been at rest; 0: as soon as it rests.
    """

    pointer: bool = False
    rest_ms: float = 0.0


@dataclass(frozen=True, slots=True)
class Pause:
    """Wait for the duration of an action."""

    duration_ms: float


@dataclass(frozen=True, slots=True)
class SeparateClick:
    """Wait until a press of this button here does not count as one more click of the last one."""

    button: str


Event = KeyEvent | ButtonEvent | PointerEvent
TimedOp = Event | DrainInput | Pause
InputOp = TimedOp | SeparateClick


@dataclass(slots=True)
class HeldInput:
    """Keys and buttons left pressed: keysym to the key's name, and buttons by number."""

    keys: dict[int, str] = field(default_factory=dict)
    buttons: list[int] = field(default_factory=list)

    def copy(self) -> HeldInput:
        return HeldInput(dict(self.keys), list(self.buttons))


@dataclass(slots=True)
class Planner:
    """Planner of one action after the other.

    Attributes:
        held: Keys and buttons that the plans so far leave pressed.
        pointer: Position of the pointer after the plans so far; None while nobody has moved it.
    """

    held: HeldInput = field(default_factory=HeldInput)
    pointer: act.Point | None = None

    def plan(self, action: act.Action, following: act.Action | None = None) -> list[InputOp]:
        """Return the operations for an action.

        Args:
            following: Next action in the same list.

        Raises:
            UnsupportedInput: No device of the machine can do it; `held` is unchanged.
        """
        ops = self._plan(action, following)
        places = [op for op in ops if isinstance(op, PointerEvent)]
        if places:
            self.pointer = (places[-1].x, places[-1].y)
        return ops

    def _plan(self, action: act.Action, following: act.Action | None) -> list[InputOp]:
        try:
            match action:
                case act.Click():
                    return self._click(action)
                case act.Move():
                    return self._move(action.at, goes_on=isinstance(following, act.Move))
                case act.Drag():
                    return self._drag(action)
                case act.Scroll():
                    return self._scroll(action)
                case act.Type():
                    return [*type_text(action.text)]
                case act.Key():
                    return self._around(action.keysyms, []) * action.repeat
                case act.Hold():
                    return self._around(action.keysyms, [Pause(action.duration_ms)])
                case act.KeyState():
                    return self._key_state(action)
                case act.ButtonState():
                    return self._button_state(action)
                case act.Wait():
                    return [Pause(action.duration_ms)]
                case act.Screenshot():
                    return []
                case _ as never:
                    assert_never(never)
        except Untypable as exc:
            raise UnsupportedInput(str(exc)) from exc

    def release(self) -> list[InputOp]:
        """Return the operations that release everything held, and forget it."""
        ops: list[InputOp] = [KeyEvent(qcode, False) for qcode in self.held.keys.values()]
        ops += [ButtonEvent(_button(number), False) for number in self.held.buttons]
        self.held = HeldInput()
        return [*ops, DrainInput(pointer=True)] if ops else []

    def _click(self, action: act.Click) -> list[InputOp]:
        button = _button(action.button)
        pressing: list[InputOp] = [SeparateClick(button)]
        for _ in range(action.count):
            pressing += [ButtonEvent(button, True), ButtonEvent(button, False), DrainInput(pointer=True)]
        return [*_to(action.at), *self._around(action.modifiers, pressing)]

    def _drag(self, action: act.Drag) -> list[InputOp]:
        button = _button(action.button)
        ops: list[InputOp] = [SeparateClick(button), ButtonEvent(button, True), DrainInput(pointer=True)]
        ops += _pull(action.path)
        ops += [ButtonEvent(button, False), DrainInput(pointer=True)]
        return [*_to(action.path[0]), *self._around(action.modifiers, ops)]

    def _move(self, at: act.Point | None, *, goes_on: bool = False) -> list[InputOp]:
        """Move the pointer; with a held button by the stops of a drag, unless it goes on."""
        if at is not None and self.held.buttons and self.pointer is not None and not goes_on:
            return _pull((self.pointer, at))
        return _to(at)

    def _scroll(self, action: act.Scroll) -> list[InputOp]:
        if action.dx:
            raise UnsupportedInput("the pointer of a guest without an agent has no horizontal wheel (dx)")
        wheel = WHEEL_DOWN if action.dy > 0 else WHEEL_UP
        turning: list[InputOp] = []
        for click in range(abs(action.dy)):
            turning += [ButtonEvent(wheel, True), ButtonEvent(wheel, False)]
            if click % WHEEL_BURST == WHEEL_BURST - 1:
                turning.append(DrainInput(pointer=True))
        return [*_to(action.at), *self._around(action.modifiers, [*turning, DrainInput(pointer=True)])]

    def _around(self, keysyms: Sequence[int], inner: Sequence[InputOp]) -> list[InputOp]:
        """Press a chord, with Shift where a symbol needs it, do the inner part, release in reverse."""
        pressed: list[str] = []
        for keysym in keysyms:
            stroke = keys.stroke(keysym)
            down = {*pressed, *self.held.keys.values()}
            if stroke.qcode in down:
                continue
            if stroke.shift and not down & {SHIFT, "shift_r"}:
                pressed.append(SHIFT)
            pressed.append(stroke.qcode)
        if not pressed:
            return list(inner)
        ops: list[InputOp] = []
        for qcode in pressed:
            ops += [KeyEvent(qcode, True), DrainInput()]
        ops += inner
        for qcode in reversed(pressed):
            ops += [KeyEvent(qcode, False), DrainInput()]
        return ops

    def _key_state(self, action: act.KeyState) -> list[InputOp]:
        qcode = keys.stroke(action.keysym).qcode
        if action.down:
            self.held.keys[action.keysym] = qcode
        else:
            qcode = self.held.keys.pop(action.keysym, qcode)
        return [KeyEvent(qcode, action.down), DrainInput()]

    def _button_state(self, action: act.ButtonState) -> list[InputOp]:
        button = _button(action.button)
        moving = self._move(action.at)
        if action.down and action.button not in self.held.buttons:
            self.held.buttons.append(action.button)
        if not action.down and action.button in self.held.buttons:
            self.held.buttons.remove(action.button)
        return [*moving, ButtonEvent(button, action.down), DrainInput(pointer=True)]


def plan_all(planner: Planner, actions: Sequence[act.Action]) -> list[list[InputOp]]:
    """Plan a whole list; on failure the planner is unchanged.

    Raises:
        UnsupportedInput: An action cannot be done; the error has its index.
    """
    held, pointer = planner.held.copy(), planner.pointer
    plans: list[list[InputOp]] = []
    for index, action in enumerate(actions):
        try:
            ops = planner.plan(action, actions[index + 1] if index + 1 < len(actions) else None)
        except UnsupportedInput as exc:
            planner.held, planner.pointer = held, pointer
            raise UnsupportedInput(str(exc), index) from exc
        follows_text = index > 0 and isinstance(action, act.Key) and isinstance(actions[index - 1], act.Type)
        plans.append([DrainInput(rest_ms=SUBMIT_REST_MS), *ops] if follows_text else ops)
    return plans


def type_text(text: str) -> list[TimedOp]:
    """Return the key presses of a text, in parts that fit into the keyboard's queue.

    Keys that do something are pressed when what stands before was read, and what follows when they were
    acted on. A line break of two characters is one Enter.

    Raises:
        Untypable: It has a character that a US keyboard lacks.
    """
    text = text.replace("\r\n", "\n")
    ops: list[TimedOp] = []
    part: list[Keystroke] = []
    for at, (char, stroke) in enumerate(zip(text, keys.strokes_of(text), strict=True)):
        acts = char in ACTING
        if acts or keys.queue_bytes([*part, stroke]) > QUEUE_BYTES:
            ops += _tap(part)
            part = []
        if not acts:
            part.append(stroke)
            continue
        if at == len(text) - 1 and at > 0 and text[at - 1] not in ACTING:
            ops.append(DrainInput(rest_ms=SUBMIT_REST_MS))
        ops += [*_tap([stroke]), DrainInput(rest_ms=ACTED_REST_MS)]
    return ops + _tap(part)


def _tap(strokes: Sequence[Keystroke]) -> list[TimedOp]:
    ops: list[TimedOp] = []
    for stroke in strokes:
        press: list[TimedOp] = [KeyEvent(stroke.qcode, True), KeyEvent(stroke.qcode, False)]
        if stroke.shift:
            press = [KeyEvent(SHIFT, True), *press, KeyEvent(SHIFT, False)]
        ops += press
    return [*ops, DrainInput()] if ops else []


def batches(ops: Sequence[TimedOp]) -> list[tuple[tuple[Event, ...], DrainInput | Pause | None]]:
    """Group a plan into events sent at once and waits after them."""
    out: list[tuple[tuple[Event, ...], DrainInput | Pause | None]] = []
    events: list[Event] = []
    for op in ops:
        if isinstance(op, DrainInput | Pause):
            out.append((tuple(events), op))
            events = []
        else:
            events.append(op)
    if events:
        out.append((tuple(events), None))
    return out


def _to(at: act.Point | None) -> list[InputOp]:
    return [] if at is None else [PointerEvent(*at), DrainInput(pointer=True)]


def _button(number: int) -> str:
    name = BUTTON_NAMES.get(number, "")
    if name not in TABLET_BUTTONS:
        raise UnsupportedInput(f"the pointer of a guest without an agent has no button {name or number!r}")
    return name


def _pull(path: Sequence[act.Point]) -> list[InputOp]:
    """Move along a path with a button down; each position is fetched before the next is sent."""
    ops: list[InputOp] = []
    for point, _ in drag_motions(path):
        ops += [PointerEvent(*point), DrainInput(pointer=True)]
    return ops
