"""Execution of actions on the display: no easing, nothing random, nothing left out."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from osgym_guest._native import Display
from osgym_guest.keyboard import SHIFT, Keyboard
from osgym_guest.typing_pace import TextReader
from osgym_protocol import actions as act
from osgym_protocol.codes import assert_never
from osgym_protocol.pointer import DOUBLE_CLICK_S, drag_motions, separation_s

WHEEL_UP, WHEEL_DOWN, WHEEL_LEFT, WHEEL_RIGHT = 4, 5, 6, 7
BETWEEN_PRESSES_S = 0.002
"""Pause between presses of one button or key.

Chromium takes two clicks in one millisecond (X's unit) for the same, and SDL takes a key pressed less than 2
ms after its release for autorepeat, which games ignore.
"""


class Input:
    """Keyboard and pointer of one display, and the keys and buttons that are held.

    Args:
        display: Display that receives the input.
        drained: Waits, within a bound, until the applications have processed the events so far.
        reader: Program into which texts are typed.
    """

    def __init__(self, display: Display, drained: Callable[[], None], reader: TextReader) -> None:
        self._display = display
        self._drained = drained
        self.keyboard = Keyboard(display, drained, reader)
        self.stopping = threading.Event()
        """Event that ends all waits at once."""
        self._held_keys: dict[int, int] = {}
        self._held_buttons: list[int] = []
        self._last_click: tuple[int, int, int, float] | None = None
        """Button, place and time (monotonic, in seconds) of the last press by a click or a drag."""

    @property
    def held(self) -> dict[str, list[int]]:
        """Keysyms and button numbers that actions have left pressed."""
        return {"keys": list(self._held_keys), "buttons": list(self._held_buttons)}

    def perform(self, action: act.Action, following: act.Action | None = None) -> None:
        """Execute one checked action; the X server has received all of it on return.

        Args:
            action: Action to execute.
            following: Action that comes next in the same list.

        Raises:
            KeyboardError: A symbol cannot be typed on this keyboard.
            DisplayGone: The X server is gone.
        """
        match action:
            case act.Click():
                self._click(action)
            case act.Move():
                self._move(action.at, goes_on=isinstance(following, act.Move))
            case act.Drag():
                self._drag(action)
            case act.Scroll():
                self._scroll(action)
            case act.Type():
                self.keyboard.type_text(action.text)
            case act.Key():
                for number in range(action.repeat):
                    self._wait_between_presses(number)
                    self._release_keys(self._press_chord(action.keysyms))
            case act.Hold():
                pressed = self._press_chord(action.keysyms)
                self._display.sync()
                self.stopping.wait(action.duration_ms / 1000)
                self._release_keys(pressed)
            case act.KeyState():
                self._key_state(action)
            case act.ButtonState():
                self._button_state(action)
            case act.Wait():
                self.stopping.wait(action.duration_ms / 1000)
            case act.Screenshot():
                pass
            case _:
                assert_never(action)
        self._display.sync()

    def release(self) -> dict[str, list[int]]:
        """Release every held key and button, and return them."""
        held = self.held
        for code in self._held_keys.values():
            self._display.key(code, False)
        for button in self._held_buttons:
            self._display.button(button, False)
        self._held_keys.clear()
        self._held_buttons.clear()
        self.keyboard.restore()
        self._display.sync()
        return held

    def _click(self, action: act.Click) -> None:
        if action.at is not None:
            self._display.motion(*action.at)
        pressed = self._press_chord(action.modifiers)
        self._separate_from_last_click(action.button)
        for number in range(action.count):
            self._wait_between_presses(number)
            self._display.button(action.button, True)
            self._display.button(action.button, False)
        self._remember_click(action.button)
        self._release_chord(pressed)

    def _wait_between_presses(self, number: int) -> None:
        if number:
            self._display.sync()
            self.stopping.wait(BETWEEN_PRESSES_S)

    def _drag(self, action: act.Drag) -> None:
        """Press at the first point of the path, move through the others, release at the last."""
        first = action.path[0]
        self._display.motion(*first)
        pressed = self._press_chord(action.modifiers)
        self._separate_from_last_click(action.button)
        self._display.button(action.button, True)
        self._remember_click(action.button)
        try:
            self._drained()
            self._pull(action.path)
        finally:
            self._display.button(action.button, False)
            self._release_chord(pressed)

    def _move(self, at: act.Point, *, goes_on: bool = False) -> None:
        """Move the pointer. While a button is held, move as a drag does, with its stops unless it goes on."""
        if self._held_buttons and not goes_on:
            x, y, _ = self._display.pointer()
            self._pull(((x, y), at))
        else:
            self._display.motion(*at)

    def _pull(self, path: tuple[act.Point, ...]) -> None:
        """Move along a path with a button down, waiting for the applications where they have to follow.

        In drag and drop the source starts at a motion, and source and target answer only to further motions.
        One motion onto the target is too few (seen in Chromium and GTK).
        """
        for point, is_awaited in drag_motions(path):
            self._display.motion(*point)
            if is_awaited:
                self._drained()

    def _separate_from_last_click(self, button: int) -> None:
        """Wait until a press here no longer counts as one more click of the click before."""
        last = self._last_click
        if last is None or last[0] != button:
            return
        passed_s = time.monotonic() - last[3]
        if passed_s < DOUBLE_CLICK_S:
            x, y, _ = self._display.pointer()
            self.stopping.wait(separation_s(passed_s, (last[1], last[2]), (x, y)))

    def _remember_click(self, button: int) -> None:
        x, y, _ = self._display.pointer()  # a round trip, after which the press has its time
        self._last_click = (button, x, y, time.monotonic())

    def _scroll(self, action: act.Scroll) -> None:
        if action.at is not None:
            self._display.motion(*action.at)
        pressed = self._press_chord(action.modifiers)
        for distance, back, forth in (
            (action.dx, WHEEL_LEFT, WHEEL_RIGHT),
            (action.dy, WHEEL_UP, WHEEL_DOWN),
        ):
            for _ in range(abs(distance)):
                self._display.button(forth if distance > 0 else back, True)
                self._display.button(forth if distance > 0 else back, False)
        self._release_chord(pressed)

    def _press_chord(self, keysyms: tuple[int, ...]) -> list[int]:
        """Press keys in order, with Shift where a symbol needs it, and return the pressed codes."""
        if not keysyms:
            return []
        pressed: list[int] = []
        self.keyboard.load()
        shift_code, _ = self.keyboard.key(SHIFT)
        found = [self.keyboard.key(keysym) for keysym in keysyms]
        for keysym, (code, level) in zip(keysyms, found):  # noqa: B905 - same length by construction
            if keysym in self._held_keys or code in pressed:
                continue
            if level == 1 and shift_code not in pressed and SHIFT not in self._held_keys:
                self.keyboard.press(shift_code, True)
                pressed.append(shift_code)
            self.keyboard.press(code, True)
            pressed.append(code)
        return pressed

    def _release_chord(self, pressed: list[int]) -> None:
        for code in reversed(pressed):
            self.keyboard.press(code, False)

    def _release_keys(self, pressed: list[int]) -> None:
        """Release the modifiers before the last key.

        A window manager's passive grab of Alt+Tab lasts while Tab is down. So the window manager sees Alt's
        release however late it takes the key, the window below does not, and the list of windows does not
        stay open.
        """
        self._release_chord([*pressed[-1:], *pressed[:-1]])

    def _key_state(self, action: act.KeyState) -> None:
        self.keyboard.load()
        if action.down:
            code, _ = self.keyboard.key(action.keysym)
            self._held_keys[action.keysym] = code
            self.keyboard.press(code, True)
        else:
            code = self._held_keys.pop(action.keysym, -1)
            if code < 0:
                code, _ = self.keyboard.key(action.keysym)
            self.keyboard.press(code, False)

    def _button_state(self, action: act.ButtonState) -> None:
        if action.at is not None:
            self._move(action.at)
        self._display.button(action.button, action.down)
        if action.down and action.button not in self._held_buttons:
            self._held_buttons.append(action.button)
        if not action.down and action.button in self._held_buttons:
            self._held_buttons.remove(action.button)
