"""A family of tasks that fit one screen: click the blue square, wherever it is.

A program in the desktop (python3-xlib, which every image has) shows a board with one blue square and some
orange ones, in places that the task's seed says, and keeps the first click. The check reads what it kept:
1 for the blue square, 0 for anything else. A click anywhere on the screen hits it once in
92. ``sft.py`` learns it from an oracle; anything that learns from rewards can use it too, since any number of
tasks can be drawn.
"""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

BOARD = (480, 270, 960, 540)
"""Left, top, width and height of the board, in pixels of a screen of 1920×1080."""
SQUARE = 150
"""Pixels of a square's side."""
OTHERS = 3
FOLDER = "/home/user/.board"

PROGRAM = f'''
import json, sys
from Xlib import X, Xatom, Xutil, display
left, top, width, height = {BOARD}
squares = json.loads(sys.argv[1])
screen_of = display.Display()
screen = screen_of.screen()
colour = lambda name: screen.default_colormap.alloc_named_color(name).pixel
board = screen.root.create_pixmap(width, height, screen.root_depth)
paint = board.create_gc(foreground=colour("#f2f2f2"))
board.fill_rectangle(paint, 0, 0, width, height)
for x, y, side, name in squares:
    paint.change(foreground=colour(name))
    board.fill_rectangle(paint, x, y, side, side)
window = screen.root.create_window(left, top, width, height, 0, screen.root_depth,
                                   background_pixmap=board, event_mask=X.ButtonPressMask)
window.set_wm_name("Board")
window.set_wm_class("board", "Board")
window.set_wm_normal_hints(flags=Xutil.USPosition | Xutil.PPosition | Xutil.PSize, x=left, y=top)
window.change_property(screen_of.intern_atom("_MOTIF_WM_HINTS"), screen_of.intern_atom("_MOTIF_WM_HINTS"),
                       32, [2, 0, 0, 0, 0])
window.map()
while True:
    event = screen_of.next_event()
    if event.type == X.ButtonPress:
        break
at, down = event.event_x, event.event_y
hit = [name for x, y, side, name in squares if x <= at < x + side and y <= down < y + side]
with open("{FOLDER}/clicked", "w") as kept:
    kept.write(hit[-1] if hit else "nothing")
while True:
    screen_of.next_event()
'''
BLUE, ORANGE = "#1f6feb", "#f0883e"


@dataclass(frozen=True)
class Layout:
    """Places of the squares: left and top on the board. The first is the blue one."""

    squares: tuple[tuple[int, int], ...]

    @classmethod
    def draw(cls, seed: int) -> Layout:
        """Draw places that do not overlap."""
        dice = random.Random(seed)  # noqa: S311 - chance, not secrets
        found: list[tuple[int, int]] = []
        while len(found) < 1 + OTHERS:
            x, y = dice.randrange(BOARD[2] - SQUARE), dice.randrange(BOARD[3] - SQUARE)
            if all(abs(x - a) >= SQUARE or abs(y - b) >= SQUARE for a, b in found):
                found.append((x, y))
            elif dice.random() < 0.02:  # what is there leaves no room: begin again
                found.clear()
        return cls(tuple(found))

    @property
    def target(self) -> tuple[int, int]:
        """Return the middle of the blue square, in pixels of the screen."""
        x, y = self.squares[0]
        return BOARD[0] + x + SQUARE // 2, BOARD[1] + y + SQUARE // 2


def make_task(seed: int) -> dict[str, Any]:
    """Return the task of a seed, whose places only the program that shows them gets."""
    squares = [
        [x, y, SQUARE, ORANGE if place else BLUE] for place, (x, y) in enumerate(Layout.draw(seed).squares)
    ]
    program = f"{FOLDER}/board.py"
    return {
        "id": f"blue-square-{seed}",
        "instruction": "Click the blue square.",
        "config": [
            {"type": "upload_file", "parameters": {"files": [{"path": program, "text": PROGRAM}]}},
            {"type": "launch", "parameters": {"command": ["python3", program, json.dumps(squares)]}},
            {
                "type": "execute_with_verification",
                "parameters": {
                    "command": ["true"],
                    "verification": {"window_exists": "Board"},
                    "max_wait_time": 60,
                    "check_interval": 0.1,
                },
            },
        ],
        "evaluator": {
            "func": "exact_match",
            "result": {"type": "vm_command_line", "command": ["cat", f"{FOLDER}/clicked"]},
            "expected": {"type": "rule", "rules": {"expected": BLUE}},
        },
        "osgym": {"seed": seed},
    }


def oracle(task: Mapping[str, Any]) -> dict[str, Any]:
    """Return the action that solves a task of this family."""
    x, y = Layout.draw(int(task["osgym"]["seed"])).target
    return {"op": "click", "x": x, "y": y}
