"""Pointer and keyboard actions, as an X client sees them."""

from __future__ import annotations

import itertools
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.guest_rig import Desktop, GuestFault, desktop, until

WINDOW = (100, 100)


class Witness:
    """An xev window at WINDOW that writes down the events it gets."""

    def __init__(self, screen: Desktop) -> None:
        self._log = screen.home / "xev.txt"
        self._log.write_text("")
        with self._log.open("w") as out:
            self.process = subprocess.Popen(
                ["stdbuf", "-oL", "xev", "-geometry", f"400x300+{WINDOW[0]}+{WINDOW[1]}"],
                env=screen.environment,
                stdout=out,
                stdin=subprocess.DEVNULL,
            )
        until(lambda: "MapNotify" in self._log.read_text() and "Expose" in self._log.read_text())
        screen.guest.step({"op": "move", "x": 300, "y": 250})
        self._skip = 0
        self.new()

    def press_times_ms(self, event: str = "ButtonPress") -> list[int]:
        """When each button press, or another event, happened so far, by the X server's clock."""
        found = re.findall(rf"{event} event[^\n]*\n[^\n]* time (\d+)", self._log.read_text())
        return [int(time_ms) for time_ms in found]

    def new(self, expect: int = 0) -> list[str]:
        """What came since the last call, such as ``press 1 @(300,250) state 0x0``."""

        def events() -> list[str]:
            text = self._log.read_text()[self._skip :]
            return [line for block in text.split("\n\n") if (line := _line(block))]

        until(lambda: len(events()) >= expect)
        found = events()
        self._skip = len(self._log.read_text())
        return found


def _line(block: str) -> str:
    kind = block.partition(" event")[0].strip().split("\n")[-1]
    at = re.search(r"root:\((\d+),(\d+)\)", block)
    where = f"@({at[1]},{at[2]})" if at else ""
    if kind in ("ButtonPress", "ButtonRelease"):
        button = re.search(r"button (\d+)", block)
        state = re.search(r"state (0x[0-9a-f]+)", block)
        assert button and state
        return f"{kind[6:].lower()} {button[1]} {where} {state[1]}"
    if kind in ("KeyPress", "KeyRelease"):
        name = re.search(r"keysym 0x[0-9a-f]+, (\w+)\)", block)
        return f"{kind.lower()} {name[1] if name else '?'}"
    if kind == "MotionNotify":
        return f"motion {where}"
    return ""


@pytest.fixture(scope="module")
def screen(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desktop]:
    """One desktop for all."""
    with desktop(tmp_path_factory.mktemp("input"), wm=False) as made:
        yield made


@pytest.fixture
def witness(screen: Desktop) -> Iterator[Witness]:
    """A client with the pointer over it."""
    made = Witness(screen)
    yield made
    made.process.kill()
    made.process.wait()
    screen.guest.json("POST", "/v1/release")


def test_clicks(screen: Desktop, witness: Witness) -> None:
    """A click arrives at its place, with its button, count and modifiers."""
    step = screen.guest.step
    step({"op": "click", "x": 310, "y": 260, "count": 2})
    assert witness.new(5)[-4:] == [
        "press 1 @(310,260) 0x0",
        "release 1 @(310,260) 0x100",
        "press 1 @(310,260) 0x0",
        "release 1 @(310,260) 0x100",
    ]
    step({"op": "click", "button": "right", "modifiers": ["ctrl", "shift"]})
    events = witness.new(6)
    assert [e for e in events if "3" in e] == ["press 3 @(310,260) 0x5", "release 3 @(310,260) 0x405"]
    assert events[0] == "keypress Control_L" and events[-1] == "keyrelease Control_L"
    step({"op": "click", "button": "forward"}, {"op": "click", "button": "middle"})
    assert [e.split(" @")[0] for e in witness.new(4)] == ["press 9", "release 9", "press 2", "release 2"]


def test_a_drag_goes_through_every_point_with_the_button_down(screen: Desktop, witness: Witness) -> None:
    """The pointer keeps to the path, stops a few times before its end, and never lifts the button between."""
    path = [[200, 200], [300, 200], [300, 301], [217, 333]]
    screen.guest.step({"op": "drag", "path": path, "button": "left"})
    events = witness.new(6)
    press = events.index("press 1 @(200,200) 0x0")
    assert events[-1] == "release 1 @(217,333) 0x100"
    moves = [e for e in events[press:] if e.startswith("motion")]
    assert moves == [
        *("motion @(212,200)", "motion @(300,200)", "motion @(300,301)"),
        *("motion @(226,329)", "motion @(223,330)", "motion @(220,331)", "motion @(217,333)"),
    ]


@pytest.mark.parametrize("steps", [1, 3], ids=["one step", "three steps"])
def test_a_move_with_a_button_held_is_a_drag(screen: Desktop, witness: Witness, steps: int) -> None:
    """Button down, move, button up give the motions of a drag, in one step and in three."""
    actions = [
        {"op": "button_down", "x": 210, "y": 210},
        {"op": "move", "x": 310, "y": 310},
        {"op": "button_up"},
    ]
    for part in [actions] if steps == 1 else [[action] for action in actions]:
        screen.guest.step(*part)
    events = witness.new(8)
    press = events.index("press 1 @(210,210) 0x0")
    assert events[press + 1 :] == [
        *("motion @(222,222)", "motion @(301,301)", "motion @(304,304)", "motion @(307,307)"),
        *("motion @(310,310)", "release 1 @(310,310) 0x100"),
    ]


def test_moves_of_a_stroke_stop_only_before_its_end(screen: Desktop, witness: Witness) -> None:
    """A move that another one follows is one motion; the last of them arrives as a drag does."""
    points = [(230, 230), (260, 210), (290, 250), (310, 310)]
    moves = [{"op": "move", "x": x, "y": y} for x, y in points]
    down, up = {"op": "button_down", "x": 210, "y": 210}, {"op": "button_up"}
    screen.guest.step(down, *moves, up)
    events = witness.new(11)
    assert events[events.index("press 1 @(210,210) 0x0") + 1 :] == [
        *(f"motion @({x},{y})" for x, y in points[:3]),
        *("motion @(294,262)", "motion @(307,301)", "motion @(308,304)", "motion @(309,307)"),
        *("motion @(310,310)", "release 1 @(310,310) 0x100"),
    ]


def test_clicks_on_one_place_are_apart_unless_a_count_says_so(screen: Desktop, witness: Witness) -> None:
    """Clicks in one step or in two, and a drag after a click, come later than any toolkit's double click."""
    step = screen.guest.step
    click = {"op": "click", "x": 320, "y": 270}
    step(click, {"op": "click"})
    step({"op": "click", "x": 323, "y": 268, "count": 2})
    step({"op": "drag", "path": [[320, 270], [340, 270]]})
    witness.new(10)
    times = witness.press_times_ms()
    assert len(times) == 5
    gaps = [after - before for before, after in itertools.pairwise(times)]
    assert gaps[0] > 500 and gaps[1] > 500 and 0 < gaps[2] < 100 and gaps[3] > 500


def test_a_key_that_is_repeated_is_no_autorepeat(screen: Desktop, witness: Witness) -> None:
    """SDL takes a press less than 2 ms after the release for autorepeat, and games ignore it."""
    screen.guest.step({"op": "key", "keys": ["F5"], "repeat": 10})
    until(lambda: len(witness.press_times_ms("KeyRelease")) == 10)
    presses, releases = witness.press_times_ms("KeyPress"), witness.press_times_ms("KeyRelease")
    gaps = [press - release for release, press in zip(releases[:-1], presses[1:], strict=True)]
    assert min(gaps) >= 2


def test_clicks_elsewhere_or_with_another_button_do_not_wait(screen: Desktop, witness: Witness) -> None:
    """Such clicks, and presses and releases given one by one, make no double click, so none waits."""
    began = time.monotonic()
    for x in range(150, 450, 30):
        screen.guest.step({"op": "click", "x": x, "y": 200, "button": "middle"}, settle={"policy": "fast"})
        screen.guest.step({"op": "click", "button": "right"}, settle={"policy": "fast"})
    press = ({"op": "button_down"}, {"op": "button_up"})
    screen.guest.step(*press, *press, settle={"policy": "fast"})
    witness.new(44)
    times = witness.press_times_ms()
    assert len(times) == 22 and times[-1] - times[-2] < 400
    assert time.monotonic() - began < 20 * 0.5


def test_scrolling_in_both_axes(screen: Desktop, witness: Witness) -> None:
    """Down and right are positive; a click of the wheel is a press and a release."""
    both = {"op": "scroll", "dx": -1, "dy": -1}
    screen.guest.step({"op": "scroll", "dy": 2}, {"op": "scroll", "dx": 1}, both)
    presses = [e.split()[1] for e in witness.new(10) if e.startswith("press")]
    assert presses == ["5", "5", "7", "6", "4"]


def test_keys_and_chords(screen: Desktop, witness: Witness) -> None:
    """Chords are pressed in order, their last key is released last; Shift comes where a symbol needs it."""
    step = screen.guest.step
    step({"op": "key", "keys": ["ctrl", "alt", "T"]})
    assert [e for e in witness.new(6) if e.startswith("key")] == [
        "keypress Control_L",
        "keypress Alt_L",
        "keypress t",
        "keyrelease Alt_L",
        "keyrelease Control_L",
        "keyrelease t",
    ]
    step({"op": "key", "keys": ["?"]})
    assert witness.new(4)[:2] == ["keypress Shift_L", "keypress question"]
    step({"op": "key", "keys": ["F5"], "repeat": 3})
    assert witness.new(6) == ["keypress F5", "keyrelease F5"] * 3
    step({"op": "key", "keys": ["ж"]})
    assert witness.new(2)[0] in ("keypress Cyrillic_zhe", "keypress U0436")


def test_a_window_manager_that_is_late_still_sees_alt_released(tmp_path: Path) -> None:
    """Alt+Tab as one action switches windows, also while the window manager gets no processor."""
    with desktop(tmp_path, wm=False, agent=False) as made:
        manager = made.start_wm()
        made.start_agent().json("POST", "/v1/ready", {"timeout_s": 20})
        for title in ("one", "two"):
            made.open("xterm", "-T", title)
        before = made.property("_NET_ACTIVE_WINDOW")
        manager.send_signal(signal.SIGSTOP)
        try:
            made.guest.step({"op": "key", "keys": ["alt", "tab"]})
            assert made.property("_NET_ACTIVE_WINDOW") == before, "it was stopped"
        finally:
            manager.send_signal(signal.SIGCONT)
        until(lambda: made.property("_NET_ACTIVE_WINDOW") != before)


def test_hold_and_wait_take_their_time(screen: Desktop, witness: Witness) -> None:
    """The key stays down for the duration and then comes up."""
    meta, _ = screen.guest.step({"op": "hold", "keys": ["a"], "duration_ms": 60})
    assert meta["timing_ms"]["input"] >= 60
    assert witness.new(2)[-1] == "keyrelease a"
    meta, _ = screen.guest.step({"op": "wait", "duration_ms": 50})
    assert meta["timing_ms"]["input"] >= 50


def test_what_is_held_stays_held_until_released(screen: Desktop, witness: Witness) -> None:
    """key_down and button_down stay; /v1/release lets go of all and says of what."""
    step = screen.guest.step
    step({"op": "key_down", "key": "shift"}, {"op": "button_down", "x": 300, "y": 260})
    witness.new(2)
    step({"op": "move", "x": 305, "y": 260})
    assert witness.new(1) == ["motion @(305,260)"]
    released = screen.guest.json("POST", "/v1/release")["released"]
    assert released == {"keys": [0xFFE1], "buttons": [1]}
    assert sorted(e.split(" @")[0] for e in witness.new(2)) == ["keyrelease Shift_L", "release 1"]
    assert screen.guest.json("POST", "/v1/release")["released"] == {"keys": [], "buttons": []}


def test_caps_lock_does_not_change_a_typed_text(screen: Desktop, witness: Witness) -> None:
    """Caps Lock is released while a text is typed and set again afterwards."""
    step = screen.guest.step
    step({"op": "key", "keys": ["capslock"]})
    witness.new(2)
    step({"op": "type", "text": "aB"})
    typed = [e for e in witness.new(10) if "keypress" in e and "Caps" not in e and "Shift" not in e]
    step({"op": "key", "keys": ["capslock"]})
    assert typed == ["keypress a", "keypress B"]


def test_nothing_is_done_when_one_action_is_refused(screen: Desktop, witness: Witness) -> None:
    """The whole list is checked first; the sequence number is not used up."""
    with pytest.raises(GuestFault) as caught:
        screen.guest.step({"op": "click"}, {"op": "click", "x": 99_999, "y": 0})
    fault = caught.value
    assert (fault.status, fault.code, fault.details) == (400, "invalid_action", {"index": 1})
    screen.guest.step({"op": "key", "keys": ["b"]})
    assert witness.new(2) == ["keypress b", "keyrelease b"]


def test_the_cursor_is_where_it_was_put(screen: Desktop) -> None:
    """OSWorld's cursor position and screen size come from the same display."""
    screen.guest.step({"op": "move", "x": 777, "y": 333})
    assert screen.guest.call("GET", "/cursor_position") in (b"[777,333]", b"[777, 333]")
