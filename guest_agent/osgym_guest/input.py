"""Carries actions out on the display, exactly: no easing, nothing random, nothing left out."""

from __future__ import annotations

import threading
from collections.abc import Callable

from osgym_guest._native import Display
from osgym_guest.keyboard import SHIFT, Keyboard
from osgym_protocol import actions as act
from osgym_protocol.codes import assert_never

WHEEL_UP, WHEEL_DOWN, WHEEL_LEFT, WHEEL_RIGHT = 4, 5, 6, 7
DRAG_START_PX = 12
"""Farther than the drag thresholds of the toolkits (GTK 8 px, Qt 10 px)."""


class Input:
    """Keyboard and pointer of one display, and what is held on them.

    Args:
        display: where the input goes.
        drained: waits, within a bound, until the applications have worked off the events so far.
    """

    def __init__(self, display: Display, drained: Callable[[], None]) -> None:
        self._display = display
        self._drained = drained
        self.keyboard = Keyboard(display, drained)
        self.stopping = threading.Event()
        """Ends waits at once when it is set."""
        self._held_keys: dict[int, int] = {}
        self._held_buttons: list[int] = []

    @property
    def held(self) -> dict[str, list[int]]:
        """Keysyms and button numbers that actions have left pressed."""
        return {"keys": list(self._held_keys), "buttons": list(self._held_buttons)}

    def perform(self, action: act.Action) -> None:
        """Do one checked action; when it returns the X server has taken all of it.

        Raises:
            KeyboardError: a symbol cannot be typed on this keyboard.
            DisplayGone: the X server is gone.
        """
        match action:
            case act.Click():
                self._click(action)
            case act.Move():
                self._display.motion(*action.at)
            case act.Drag():
                self._drag(action)
            case act.Scroll():
                self._scroll(action)
            case act.Type():
                self.keyboard.type_text(action.text)
            case act.Key():
                for _ in range(action.repeat):
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
        """Let go of everything that is held; what it was."""
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
        for _ in range(action.count):
            self._display.button(action.button, True)
            self._display.button(action.button, False)
        self._release_chord(pressed)

    def _drag(self, action: act.Drag) -> None:
        """Drag along the path. Where a drag begins and before it ends the applications get time to
        follow: drag and drop is a conversation between them."""
        first = action.path[0]
        self._display.motion(*first)
        pressed = self._press_chord(action.modifiers)
        self._display.button(action.button, True)
        try:
            self._display.motion(*_toward(first, action.path[1]))
            self._drained()
            for point in action.path[1:]:
                self._display.motion(*point)
            self._drained()
        finally:
            self._display.button(action.button, False)
            self._release_chord(pressed)

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
        """Press keys in order, with Shift where a symbol needs it; the codes that were pressed."""
        pressed: list[int] = []
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

        A window manager's passive grab of Alt+Tab lasts while Tab is down. So it is told of Alt's release
        however late it takes the key, and not the window below: its list of windows does not stay open.
        """
        self._release_chord([*pressed[-1:], *pressed[:-1]])

    def _key_state(self, action: act.KeyState) -> None:
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
            self._display.motion(*action.at)
        self._display.button(action.button, action.down)
        if action.down and action.button not in self._held_buttons:
            self._held_buttons.append(action.button)
        if not action.down and action.button in self._held_buttons:
            self._held_buttons.remove(action.button)


def _toward(start: tuple[int, int], goal: tuple[int, int]) -> tuple[int, int]:
    """A point DRAG_START_PX from `start` on the way to `goal`, or `goal` when it is nearer."""
    dx, dy = goal[0] - start[0], goal[1] - start[1]
    distance = max(abs(dx), abs(dy))
    if distance <= DRAG_START_PX:
        return goal
    return start[0] + dx * DRAG_START_PX // distance, start[1] + dy * DRAG_START_PX // distance
