"""Show a window of SDL and write down what it received: `sdl.py LOG`.

SDL gives a program events and no widgets. So the fields here are as simple as a game's: the text of a field
is what SDL's text events brought, and Backspace takes the last character away.
"""

from __future__ import annotations

import os
import sys
import time
from dataclasses import dataclass

os.environ["PYGAME_HIDE_SUPPORT_PROMPT"] = "1"
os.environ["SDL_VIDEO_CENTERED"] = "0"
os.environ["SDL_VIDEO_WINDOW_POS"] = "40,40"

import pygame
from recorder import HEIGHT, PLACES, WIDTH, PressCounter, Recorder, Stroke, key_name
from xwindow import WindowFinder

TITLE = "witness-sdl"
TARGETS = ("entry", "keys", "area", "drop", "scroll")
NAMES = {
    pygame.K_RETURN: "Return",
    pygame.K_BACKSPACE: "BackSpace",
    pygame.K_TAB: "Tab",
    pygame.K_ESCAPE: "Escape",
    pygame.K_SPACE: "space",
    pygame.K_DELETE: "Delete",
    pygame.K_INSERT: "Insert",
    pygame.K_HOME: "Home",
    pygame.K_END: "End",
    pygame.K_PAGEUP: "Prior",
    pygame.K_PAGEDOWN: "Next",
    pygame.K_LEFT: "Left",
    pygame.K_RIGHT: "Right",
    pygame.K_UP: "Up",
    pygame.K_DOWN: "Down",
    pygame.K_LSHIFT: "Shift_L",
    pygame.K_RSHIFT: "Shift_R",
    pygame.K_LCTRL: "Control_L",
    pygame.K_RCTRL: "Control_R",
    pygame.K_LALT: "Alt_L",
    pygame.K_RALT: "Alt_R",
    pygame.K_CAPSLOCK: "Caps_Lock",
}


@dataclass
class Window:
    """The state between two events.

    Attributes:
        recorder: where events are written down.
        origin: where the window's content begins on the screen.
    """

    recorder: Recorder
    origin: tuple[int, int] = (0, 0)
    focus: str = "entry"
    text: str = ""
    stroke: Stroke | None = None

    def __post_init__(self) -> None:
        self._presses = PressCounter()

    def take(self, event: pygame.event.Event) -> None:
        match event.type:
            case pygame.TEXTINPUT if self.focus == "entry":
                self._changed(self.text + event.text)
            case pygame.KEYDOWN | pygame.KEYUP:
                self._key(event)
            case pygame.MOUSEBUTTONDOWN if event.button <= 3:
                self._pressed(event)
            case pygame.MOUSEMOTION if self.stroke is not None:
                self.stroke.move(*self._on_screen(event.pos))
            case pygame.MOUSEBUTTONUP if self.stroke is not None and event.button <= 3:
                self.stroke.end(self.recorder, *self._on_screen(event.pos))
                self.stroke = None
            case pygame.MOUSEWHEEL if self._target(pygame.mouse.get_pos()) == "scroll":
                # SDL's wheel is positive up and to the right
                self.recorder.write("scroll", dx=event.x, dy=-event.y)
            case pygame.DROPTEXT:
                self.recorder.write("drop", target="drop", data=event.text)
            case pygame.DROPFILE:
                self.recorder.write("drop", target="drop", data=event.file)
            case pygame.QUIT:
                self.recorder.write("exit")
                sys.exit()

    def _changed(self, text: str) -> None:
        self.text = text
        self.recorder.write("text", target="entry", value=text)

    def _on_screen(self, position: tuple[int, int]) -> tuple[int, int]:
        return position[0] + self.origin[0], position[1] + self.origin[1]

    def _target(self, position: tuple[int, int]) -> str:
        for name in TARGETS:
            if pygame.Rect(PLACES[name]).collidepoint(position):
                return name
        return ""

    def _key(self, event: pygame.event.Event) -> None:
        down = event.type == pygame.KEYDOWN
        if self.focus == "entry":
            if down and event.key == pygame.K_BACKSPACE:
                self._changed(self.text[:-1])
            elif down and event.key == pygame.K_RETURN:
                self.recorder.write("activate", target="entry")
            elif down and event.key == pygame.K_a and event.mod & pygame.KMOD_CTRL:
                self.text = ""  # what is typed replaces what is selected
            return
        char = event.unicode if event.unicode.isprintable() else ""
        name = key_name(
            NAMES.get(event.key, char or pygame.key.name(event.key)),
            char or (chr(event.key) if 0x20 < event.key < 0x110000 and event.key not in NAMES else ""),
            ctrl=bool(event.mod & pygame.KMOD_CTRL),
            alt=bool(event.mod & pygame.KMOD_ALT),
            shift=bool(event.mod & pygame.KMOD_SHIFT),
        )
        self.recorder.write("key", name=name, down=down)

    def _pressed(self, event: pygame.event.Event) -> None:
        target = self._target(event.pos)
        if target in ("entry", "keys"):
            self.focus = target
        if target == "area":
            x, y = self._on_screen(event.pos)
            count = self._presses.count(event.button, x, y, time.monotonic_ns() // 1_000_000)
            self.stroke = Stroke(x, y)
            self.recorder.write("click", target="area", button=event.button, count=count, x=x, y=y)


def main() -> None:
    pygame.display.init()  # all of pygame would look for sound too
    screen = pygame.display.set_mode((WIDTH, HEIGHT))
    pygame.display.set_caption(TITLE)
    pygame.key.set_repeat(500, 30)
    screen.fill("white")
    for name in TARGETS:
        pygame.draw.rect(screen, "black", PLACES[name], 1)
    pygame.display.flip()
    pygame.key.start_text_input()
    window = Window(Recorder(sys.argv[1]))
    pygame.event.pump()
    x, y, *_ = WindowFinder().place(TITLE)
    window.origin = (x, y)
    window.recorder.ready(window.origin, TARGETS)
    while True:
        window.take(pygame.event.wait())


if __name__ == "__main__":
    main()
