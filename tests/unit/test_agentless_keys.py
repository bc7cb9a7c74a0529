"""Guests without an agent, the pure part: keys, plans of input, frames, when a screen counts as final."""

from __future__ import annotations

import io
import random
import string
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from osgym_protocol.actions import Click, Drag, Hold, Key, KeyState, Scroll, Type, parse_actions
from osgym_protocol.codes import ImageFormat
from osgym_protocol.keysyms import KEYSYMS, key_keysym
from osgym_qemu.agentless import frames, plan
from osgym_qemu.agentless.display import ABS_RANGE, axis_value, reports, to_qmp
from osgym_qemu.agentless.frames import BadFrame, Frame
from osgym_qemu.agentless.keys import Keystroke, Untypable, stroke, strokes_of
from osgym_qemu.agentless.plan import (
    ButtonEvent,
    DrainInput,
    Event,
    InputOp,
    KeyEvent,
    Pause,
    Planner,
    PointerEvent,
    SeparateClick,
    UnsupportedInput,
    plan_all,
)
from osgym_qemu.agentless.remote import MAX_PROGRAM_CHARS, programs
from osgym_qemu.agentless.settle import EXACT, QuietJudge
from osgym_qemu.agentless.vcpu import VcpuWork

SCREEN = (1280, 800)
QUEUE = 16
"""Bytes that the queue of an emulated PS/2 keyboard holds (PS2_QUEUE_SIZE of QEMU)."""


def planned(*actions: dict[str, object]) -> list[InputOp]:
    return [op for ops in plan_all(Planner(), parse_actions(list(actions), SCREEN)) for op in ops]


def typed(ops: Sequence[InputOp]) -> str:
    """What a guest with a US keyboard makes of key events."""
    shifted = {"1": "!", "2": "@", "9": "(", "minus": "_", "grave_accent": "~", "comma": "<", "slash": "?"}
    plain = {"spc": " ", "minus": "-", "grave_accent": "`", "comma": ",", "slash": "/", "ret": "\n"}
    text, shift = "", False
    for op in ops:
        if isinstance(op, KeyEvent) and op.qcode == "shift":
            shift = op.down
        elif isinstance(op, KeyEvent) and op.down:
            char = plain.get(op.qcode, op.qcode)
            text += (shifted.get(op.qcode) or char.upper()) if shift else char
    return text


def test_every_printable_ascii_character_has_a_key() -> None:
    """What a US keyboard shows can be typed, each character by one stroke of its own."""
    printable = [char for char in string.printable if char not in "\x0b\x0c\r"]
    strokes = strokes_of("".join(printable))
    assert len(set(strokes)) == len(printable)


def test_a_text_is_typed_as_it_is() -> None:
    """Shift is pressed for the characters that need it and for no other."""
    text = "aB c-D_1! 2@9(`~,</?\n"
    assert typed(planned({"op": "type", "text": text})) == text


@pytest.mark.parametrize("text", ["für", "€", "日本", "\U0001f600"])
def test_what_a_us_keyboard_lacks_is_refused_before_anything_is_done(text: str) -> None:
    """The error names the character and the action."""
    actions = parse_actions([{"op": "key", "keys": ["a"]}, {"op": "type", "text": "ok " + text}], SCREEN)
    with pytest.raises(UnsupportedInput, match=r"U\+") as caught:
        plan_all(Planner(), actions)
    assert caught.value.index == 1


@pytest.mark.parametrize(
    ("name", "qcode"),
    [
        ("enter", "ret"),
        ("esc", "esc"),
        ("pgdn", "pgdn"),
        ("win", "meta_l"),
        ("altgr", "alt_r"),
        ("menu", "compose"),
        ("F12", "f12"),
        ("printscreen", "print"),
        ("num7", "kp_7"),
        ("space", "spc"),
    ],
)
def test_names_of_keys_reach_the_key_that_has_them(name: str, qcode: str) -> None:
    """The usual aliases included."""
    assert stroke(key_keysym(name)).qcode == qcode


def test_a_key_that_no_pc_has_is_refused_by_name() -> None:
    """Not by number."""
    with pytest.raises(Untypable, match="F13"):
        stroke(KEYSYMS["F13"])


@given(st.text(alphabet=string.printable.replace("\x0b", "").replace("\x0c", "").replace("\r", "\n")))
def test_no_part_of_a_text_overflows_the_keyboards_queue(text: str) -> None:
    """Between two waits for the guest no more bytes are sent than its queue holds; nothing stays pressed."""
    down: list[str] = []
    for events, then in plan.batches(plan.type_text(text)):
        strokes = [Keystroke(event.qcode) for event in events if isinstance(event, KeyEvent) and event.down]
        assert sum(5 if s.qcode in ("delete",) else 3 for s in strokes) <= QUEUE
        assert isinstance(then, DrainInput)
        for event in events:
            assert isinstance(event, KeyEvent)
            down.append(event.qcode) if event.down else down.remove(event.qcode)
    assert down == []


def test_a_chord_is_pressed_in_order_and_released_in_reverse() -> None:
    """With Shift where a symbol needs it."""
    ops = [op for op in planned({"op": "key", "keys": ["ctrl", "?"]}) if isinstance(op, KeyEvent)]
    names = [(op.qcode, op.down) for op in ops]
    pressed = [("ctrl", True), ("shift", True), ("slash", True)]
    assert names == [*pressed, *((name, False) for name, _ in reversed(pressed))]


def test_a_held_key_is_not_pressed_twice_and_is_released_once() -> None:
    """`release` lets go of what `key_down` and `button_down` left."""
    planner = Planner()
    actions = [{"op": "key_down", "key": "shift"}, {"op": "key", "keys": ["A"]}, {"op": "button_down"}]
    ops = [op for ops in plan_all(planner, parse_actions(actions, SCREEN)) for op in ops]
    assert [op.down for op in ops if isinstance(op, KeyEvent) and op.qcode == "shift"] == [True]
    assert (list(planner.held.keys), planner.held.buttons) == ([KEYSYMS["Shift_L"]], [1])
    assert planner.release() == [
        KeyEvent("shift", False), ButtonEvent("left", False), DrainInput(pointer=True)
    ]  # fmt: skip
    assert planner.release() == []


def test_a_refused_list_leaves_the_planner_as_it_was() -> None:
    """Nothing was done, so nothing is held."""
    planner = Planner()
    actions = [{"op": "key_down", "key": "ctrl"}, {"op": "click", "button": "back"}]
    with pytest.raises(UnsupportedInput, match="side") as caught:
        plan_all(planner, parse_actions(actions, SCREEN))
    assert (caught.value.index, planner.held.keys) == (1, {})


@pytest.mark.parametrize("action", [{"op": "scroll", "dx": 1}, {"op": "click", "button": "forward"}])
def test_what_the_tablet_lacks_is_refused(action: dict[str, object]) -> None:
    """It has three buttons and one wheel."""
    with pytest.raises(UnsupportedInput, match="without an agent"):
        planned(action)


def test_a_drag_begins_with_a_small_move_and_goes_through_every_point() -> None:
    """Each point is waited for: positions that the guest has not fetched would be merged."""
    ops = planned({"op": "drag", "path": [[0, 0], [100, 0], [100, 50]]})
    assert ops == [
        PointerEvent(0, 0), DrainInput(True),
        SeparateClick("left"), ButtonEvent("left", True), DrainInput(True),
        *(op for point in ((12, 0), (100, 0), (100, 41), (100, 44), (100, 47), (100, 50))
          for op in (PointerEvent(*point), DrainInput(True))),
        ButtonEvent("left", False), DrainInput(True),
    ]  # fmt: skip


def test_a_move_with_a_button_held_is_a_drag() -> None:
    """From where the pointer was put, also by an action of an earlier step."""
    planner = Planner(pointer=(10, 10))
    actions = [{"op": "button_down"}, {"op": "move", "x": 10, "y": 40}, {"op": "button_up", "x": 10, "y": 60}]
    ops = [op for ops in plan_all(planner, parse_actions(actions, SCREEN)) for op in ops]
    points = [(op.x, op.y) for op in ops if isinstance(op, PointerEvent)]
    assert points == [(10, y) for y in (22, 31, 34, 37, 40, 52, 54, 57, 60)]
    assert planner.pointer == (10, 60) and not planner.held.buttons


def test_a_move_that_another_one_follows_is_one_motion() -> None:
    """Of the moves of a stroke only the last arrives as a drag does."""
    planner = Planner(pointer=(10, 10))
    moves = [{"op": "move", "x": 10, "y": y} for y in (40, 90, 140)]
    actions = [{"op": "button_down"}, *moves, {"op": "button_up"}]
    ops = [op for ops in plan_all(planner, parse_actions(actions, SCREEN)) for op in ops]
    points = [op.y for op in ops if isinstance(op, PointerEvent)]
    assert points == [40, 90, 102, 131, 134, 137, 140]
    assert planner.pointer == (10, 140)


def rests(*actions: dict[str, object]) -> list[str | float]:
    """The keys of a plan, and how long the guest rests between them where it has to."""
    found: list[str | float] = []
    for op in planned(*actions):
        if isinstance(op, KeyEvent) and op.down:
            found.append(op.qcode)
        elif isinstance(op, DrainInput) and op.rest_ms:
            found.append(op.rest_ms)
    return found


def test_keys_that_act_are_apart_from_the_text_around_them() -> None:
    """Within a text for a moment; an Enter that ends it comes after a dialog's timers."""
    acted, submit = plan.ACTED_REST_MS, plan.SUBMIT_REST_MS
    assert rests({"op": "type", "text": "a\r\nb\n"}) == ["a", "ret", acted, "b", submit, "ret", acted]
    assert rests({"op": "type", "text": "\t\n"}) == ["tab", acted, "ret", acted]
    enter = {"op": "key", "keys": ["Return"]}
    assert rests({"op": "type", "text": "ab"}, enter) == ["a", "b", submit, "ret"]
    assert rests(enter, {"op": "wait", "duration_ms": 1}, enter) == ["ret", "ret"]


def test_scrolling_turns_the_wheel_with_the_modifiers_held() -> None:
    """Down is positive."""
    ops = planned({"op": "scroll", "x": 5, "y": 6, "dy": 2, "modifiers": ["ctrl"]})
    names = [getattr(op, "button", getattr(op, "qcode", "")) for op in ops if not isinstance(op, DrainInput)]
    assert names == ["", "ctrl", "wheel-down", "wheel-down", "wheel-down", "wheel-down", "ctrl"]


def test_holding_and_waiting_take_the_time_they_say() -> None:
    """As pauses between press and release."""
    ops = planned({"op": "hold", "keys": ["a"], "duration_ms": 250}, {"op": "wait", "duration_ms": 10})
    assert [op for op in ops if isinstance(op, Pause)] == [Pause(250), Pause(10)]
    assert isinstance(ops[0], KeyEvent) and ops[0].down


def test_every_action_of_the_grammar_has_a_plan() -> None:
    """What the guest agent takes is taken here too, but for what no device can do."""
    planner = Planner()
    for action in (Click(None, 1, 2, ()), Drag(((0, 0), (1, 1)), 1, ()), Scroll(None, 0, -3, ()),
                   Type("x"), Key((0x61,), 3), Hold((0x61,), 1.0), KeyState(0x61, True)):  # fmt: skip
        assert planner.plan(action)


@pytest.mark.parametrize("size", [640, 1280, 1920, 3840])
@pytest.mark.parametrize("reading", ["cut", "round", "wide"])
def test_the_pointer_lands_on_the_pixel_that_was_meant(size: int, reading: str) -> None:
    """However a guest turns the tablet's steps into pixels."""
    for x in (0, 1, size // 3, size - 2, size - 1):
        at = axis_value(x, size)
        assert 0 <= at < ABS_RANGE
        exact = at * size / (ABS_RANGE - 1 if reading == "wide" else ABS_RANGE)
        assert (round(exact) if reading == "round" else int(exact)) == x


def test_a_button_and_a_position_are_a_report_each() -> None:
    """In one report a button that goes down and up would have done neither."""
    events: list[Event] = [
        PointerEvent(1, 1),
        ButtonEvent("left", True),
        KeyEvent("a", True),
        ButtonEvent("left", False),
    ]
    assert [len(part) for part in reports(events)] == [1, 2, 1]
    assert to_qmp(events[1], SCREEN) == [{"type": "btn", "data": {"down": True, "button": "left"}}]


def test_input_by_the_guests_server_is_a_program_of_fixed_words() -> None:
    """No text of an action gets into it but names of keys from a fixed map."""
    events: list[Event] = [PointerEvent(3, 4), ButtonEvent("left", True), ButtonEvent("wheel-up", True)]
    events += [KeyEvent(each.qcode, True) for each in strokes_of("'\"\\);x")]
    ((source, pause_s),) = programs([*events, Pause(1500)])
    compile(source, "program", "exec")
    assert 'p.moveTo(3,4)\np.mouseDown(button="left")\np.scroll(1)\np.keyDown("\'")' in source
    assert pause_s == 1.5
    long = programs(plan.type_text("x" * 10_000))
    assert len(long) > 1
    assert all(len(text) < MAX_PROGRAM_CHARS + 1000 for text, _ in long)


def noise(width: int, height: int, seed: int = 1) -> Frame:
    return Frame(width, height, random.Random(seed).randbytes(width * height * 3))


@pytest.mark.parametrize("size", [(1, 1), (7, 5), (64, 48)])
def test_png_is_lossless(size: tuple[int, int]) -> None:
    """Read by somebody else it is the same picture."""
    frame = noise(*size)
    data, width, height = frames.encode(frame, ImageFormat.PNG)
    with Image.open(io.BytesIO(data)) as image:
        image.load()
        assert (image.mode, image.size, image.tobytes()) == ("RGB", size, frame.rgb)
    assert (width, height) == size
    assert frames.decode(data) == frame


def test_a_part_of_the_screen_is_cut_out_and_scaled() -> None:
    """Region first, then size."""
    frame = noise(40, 30)
    data, width, height = frames.encode(frame, ImageFormat.PNG, region=(4, 6, 10, 8))
    assert frames.decode(data).rgb == frame.image().crop((4, 6, 14, 14)).tobytes()
    assert (width, height) == (10, 8)
    assert frames.encode(frame, ImageFormat.JPEG, size=(20, 15))[1:] == (20, 15)


def test_a_ppm_is_read_or_refused() -> None:
    """Lengths that do not fit and sizes that no screen has are refused."""
    assert frames.parse_ppm(b"P6\n2 1\n255\nabcdef") == Frame(2, 1, b"abcdef")
    for data in (
        b"P6\n2 1\n255\nabc",
        b"P5\n2 1\n255\nab",
        b"",
        b"P6\n99999 99999\n255\n",
        b"P6\n0 1\n255\n",
    ):
        with pytest.raises(BadFrame):
            frames.parse_ppm(data)


def test_a_picture_from_a_guest_is_read_or_refused() -> None:
    """Neither PNG nor JPEG, broken, or a bomb: the size is judged before anything is unpacked."""
    bomb = frames.png(Image.new("RGB", (1, 1))).replace(b"\x00\x00\x00\x01" * 2, b"\x00\x00\xff\xff" * 2)
    for data in (b"GIF89a", b"\x89PNG\r\n\x1a\n", frames.png(Image.new("RGB", (9, 9)))[:40], bomb):
        with pytest.raises(BadFrame):
            frames.decode(data)


def test_frames_are_compared() -> None:
    """By the box around what differs; a thin line is a caret."""
    one = Frame(100, 50, bytes(15000))
    other = one.image().copy()
    other.paste((255, 255, 255), (10, 20, 12, 36))
    changed = Frame(100, 50, other.tobytes())
    assert frames.difference(one, one) is None
    assert frames.difference(one, changed) == (10, 20, 2, 16)
    assert frames.difference(one, Frame(1, 1, b"abc")) == (0, 0, 1, 1)
    kept = frames.PackedFrame.of(one)
    assert (kept.difference(one), kept.difference(changed)) == (None, (10, 20, 2, 16))
    assert len(kept.data) < len(one.rgb) / 10
    assert frames.is_caret((10, 20, 2, 16))
    assert not frames.is_caret((10, 20, 9, 16))
    assert frames.digest(one) != frames.digest(changed)
    assert frames.is_blank(one)
    assert not frames.is_blank(changed)


def judged(looks: list[tuple[float, int, Frame | None]], before: Frame) -> tuple[float | None, QuietJudge]:
    """When a judge is content: (time, CPU milliseconds so far, the screen if it is looked at)."""
    judge = QuietJudge(EXACT, 0.0, before)
    for at, cpu_ms, frame in looks:
        judge.add_work(at, VcpuWork(cpu_ms * 1_000_000, running=False))
        if frame is not None:
            judge.add_frame(at, frame)
            if judge.is_settled(at):
                return at, judge
    return None, judge


def test_a_screen_is_final_when_it_is_quiet_and_the_guest_rests() -> None:
    """The time of quiet counts from the last change, not before the guest has come to rest."""
    before, after = Frame(1, 1, b"abc"), noise(50, 50)
    busy = [(float(at), at, after) for at in range(0, 400, 10)]  # it works all the time
    assert judged(busy[:35], before)[0] is None
    resting = [(float(at), min(at, 100), after if at >= 50 else before) for at in range(0, 400, 10)]
    at, judge = judged(resting, before)
    assert at == 170.0  # the last change at 50, and 120 ms of quiet
    assert judge.changed_ms == 50.0


def test_nothing_changed_is_final_too() -> None:
    """After the time in which something would have."""
    same = Frame(1, 1, b"abc")
    at, judge = judged([(float(at), 0, same) for at in range(0, 400, 10)], same)
    assert (at, judge.changed_ms) == (120.0, None)


def test_a_screen_that_is_known_to_rest_is_final_when_the_guest_rests() -> None:
    """Its quiet counts from when it began; a change after all begins it anew."""
    same, after = Frame(1, 1, b"abc"), noise(50, 50)
    for changes_at_ms, expected_ms in ((9999, EXACT.idle_ms), (40, 40 + EXACT.quiet_ms)):
        judge = QuietJudge(EXACT, 0.0, same)
        judge.rested_since(-1000.0)
        for at in range(0, 400, 10):
            judge.add_work(at, VcpuWork(0, running=False))
            judge.add_frame(at, after if at >= changes_at_ms else same)
            if judge.is_settled(at):
                break
        assert at == expected_ms


def test_what_blinks_does_not_put_the_end_off() -> None:
    """A cursor of any shape goes back to a picture that was there before."""
    on, off = noise(50, 50, 1), noise(50, 50, 2)
    blinking = [(float(at), 0, on if at // 100 % 2 else off) for at in range(0, 2000, 50)]
    assert judged(blinking, off)[0] == 250.0


def test_a_guest_that_never_rests_is_waited_for_until_its_screen_is_quiet_for_longer() -> None:
    """Something computes; the screen alone decides."""
    before, after = Frame(1, 1, b"abc"), noise(50, 50)
    looks = [(float(at), at, after) for at in range(10, 1000, 10)]
    assert judged(looks, before)[0] == 10 + EXACT.busy_quiet_ms
