"""When the guest answers, what it says about it, and the watch afterwards, with real applications."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support import soft_caret
from tests.support.guest_rig import Desktop, GuestFault, desktop, until

KEY = {"op": "key", "keys": ["space"]}

# A program in a terminal that waits for a key and then does what it is told.
AFTER_KEY = "stty -echo -icanon; while IFS= read -r -n1 k; do {}; done"


@pytest.fixture
def screen(tmp_path: Path) -> Iterator[Desktop]:
    """A desktop with short times for burners, and a long one for panels, which a busy machine slows down."""
    settle = tmp_path / "settle.json"
    settle.write_text(json.dumps({"burner_s": 1.5, "ready": {"panel_ms": 15_000}}))
    with desktop(tmp_path, agent=False) as made:
        made.start_agent(OSGYM_SETTLE=str(settle))
        made.guest.json("POST", "/v1/ready", {"timeout_s": 20})
        yield made


def react(screen: Desktop, commands: str) -> None:
    """Open a terminal that runs `commands` at each key."""
    screen.open("xterm", "-geometry", "60x20+100+100", "-e", "bash", "-c", AFTER_KEY.format(commands))


def test_nothing_happens(screen: Desktop) -> None:
    """The answer comes after the idle time and says so."""
    react(screen, ":")
    meta, _ = screen.guest.step(KEY)
    assert meta["settle"]["reason"] == "unchanged"
    assert meta["settle"]["last_change_ms"] is None
    assert 25 <= meta["settle"]["wait_ms"] < 300
    assert meta["previous"]["final"] is True


def test_work_that_ends_in_a_change_is_waited_for(screen: Desktop) -> None:
    """Busy for some tenths of a second without a change, then a change: it is in the frame."""
    react(screen, "for ((i=0;i<150000;i++)); do :; done; echo done")
    before = screen.guest.image()
    meta, _ = screen.guest.step(KEY, settle={"max_ms": 30_000})
    assert meta["settle"]["reason"] == "quiet"
    assert meta["settle"]["last_change_ms"] > 50
    assert screen.guest.image().tobytes() != before.tobytes()
    final, _ = screen.guest.record("/v1/final", {"seq": meta["seq"], "timeout_ms": 5000})
    assert final["final"] is True and final["previous"]["final"] is True
    assert screen.guest.step({"op": "screenshot"})[0]["previous"]["final"] is True


def test_a_timer_within_the_horizon_is_waited_for(tmp_path: Path) -> None:
    """A program that sleeps for longer than the idle time and then draws is waited for."""
    settle = tmp_path / "settle.json"
    settle.write_text(json.dumps({"policies": {"exact": {"horizon_ms": 1500}}}))
    with desktop(tmp_path, agent=False) as made:
        made.start_agent(OSGYM_SETTLE=str(settle))
        made.guest.json("POST", "/v1/ready", {"timeout_s": 20})
        react(made, "sleep 0.2; echo done")
        meta, _ = made.guest.step(KEY)
        assert meta["settle"]["reason"] == "quiet"
        assert meta["settle"]["last_change_ms"] >= 195


def test_a_calibrated_program_is_waited_for_longer(tmp_path: Path) -> None:
    """The table has a longer wait for typing only, so Return does not wait as long."""
    long = {"horizon_ms": 1000, "change_horizon_ms": 1000}
    table = {name: {"type": long} for name in ("bash", "sleep", "xterm")}
    with desktop(tmp_path, agent=False) as made:
        made.start_agent(OSGYM_SETTLE_TABLE=json.dumps(table))
        made.guest.json("POST", "/v1/ready", {"timeout_s": 20})
        react(made, "sleep 0.45; echo done")
        meta, _ = made.guest.step(KEY)
        assert meta["settle"]["reason"] == "quiet"
        assert meta["settle"]["last_change_ms"] >= 445
        meta, _ = made.guest.step({"op": "key", "keys": ["Return"]})
        assert meta["settle"]["wait_ms"] < 445


def test_fast_does_not_wait_for_it_and_the_watch_marks_the_frame(screen: Desktop) -> None:
    """A frame that changed later is marked in the next answer, with the time of the change."""
    react(screen, "sleep 0.4; echo done")
    meta, _ = screen.guest.step(KEY, settle={"policy": "fast"})
    assert meta["settle"]["policy"] == "fast"
    assert meta["settle"]["wait_ms"] < 300
    until(lambda: frame_hash(screen) != meta["frame"]["hash"])
    previous = screen.guest.step({"op": "screenshot"})[0]["previous"]
    assert previous["seq"] == meta["seq"]
    assert previous["final"] is False
    assert 150 < previous["changed_after_ms"] < 700
    assert screen.guest.step({"op": "screenshot"})[0]["previous"]["final"] is True


def test_final_gives_the_later_frame(screen: Desktop) -> None:
    """It waits until the screen is final, and says that the answered frame was not."""
    react(screen, "sleep 0.4; echo done")
    meta, image = screen.guest.step(KEY, settle={"policy": "fast"})
    final, later = screen.guest.record("/v1/final", {"seq": meta["seq"], "timeout_ms": 5000})
    assert final["final"] is True and final["seq"] == meta["seq"]
    assert later != image
    assert final["previous"]["final"] is False
    meta, _ = screen.guest.step({"op": "screenshot"})
    assert meta["previous"]["final"] is False


def test_certain_waits_for_what_comes_late_and_says_that_it_is_sure(screen: Desktop) -> None:
    """A change that `exact` would miss is in the frame, and the watch never takes it back."""
    react(screen, "sleep 0.4; echo done")
    meta, _ = screen.guest.step(KEY, settle={"policy": "certain"})
    assert (meta["settle"]["policy"], meta["settle"]["reason"], meta["final"]) == ("certain", "quiet", True)
    assert meta["settle"]["last_change_ms"] >= 395
    meta, _ = screen.guest.step({"op": "screenshot"})
    assert meta["previous"]["final"] is True
    assert "final" not in meta, "only who waited for it is told"


def test_certain_is_bounded_and_says_that_it_is_not_sure(screen: Desktop) -> None:
    """A screen that never rests ends the wait after max_ms, without a promise."""
    react(screen, "for i in $(seq 300); do echo $i; sleep 0.02; done")
    meta, _ = screen.guest.step(KEY, settle={"policy": "certain", "max_ms": 300})
    assert (meta["settle"]["reason"], meta["final"]) == ("timeout", False)
    assert 300 <= meta["settle"]["wait_ms"] < 900


def test_final_says_when_the_time_is_up(screen: Desktop) -> None:
    """A screen that never rests gives final: false; a wrong number is refused."""
    react(screen, "for i in $(seq 300); do echo $i; sleep 0.02; done")
    meta, _ = screen.guest.step(KEY, settle={"policy": "fixed", "pause_ms": 50})
    assert meta["settle"]["reason"] == "fixed" and 50 <= meta["settle"]["wait_ms"] < 90
    body = {"seq": meta["seq"], "timeout_ms": 300}
    assert screen.guest.record("/v1/final", body)[0]["final"] is False
    with pytest.raises(GuestFault) as caught:
        screen.guest.record("/v1/final", {"seq": meta["seq"] + 1})
    assert caught.value.code == "bad_sequence"


def test_a_screen_that_never_rests_is_bounded(screen: Desktop) -> None:
    """max_ms ends the wait, with the reason."""
    react(screen, "while :; do echo $RANDOM; done")
    meta, _ = screen.guest.step(KEY, settle={"max_ms": 400})
    assert meta["settle"]["reason"] == "timeout"
    assert 400 <= meta["settle"]["wait_ms"] < 700


def test_who_burns_the_processor_for_ever_is_not_waited_for(screen: Desktop) -> None:
    """A step waits for a busy program at first; after a while the program does not count any more."""
    react(screen, "while :; do :; done")
    meta, _ = screen.guest.step(KEY, settle={"max_ms": 300})
    assert meta["settle"]["reason"] == "timeout"
    time.sleep(1.8)  # longer than `burner_s`; a step that begins earlier waits for the program
    meta, _ = screen.guest.step({"op": "move", "x": 700, "y": 700}, settle={"max_ms": 20_000})
    assert meta["settle"]["reason"] in ("quiet", "unchanged")


def test_a_launched_application_is_waited_for_before_it_has_a_window(screen: Desktop) -> None:
    """A process that the action started counts, even while it has not drawn anything."""
    load = "python3 -c 'sum(range(9000000))'; xterm -geometry 20x5+800+500 &"
    react(screen, f'(setsid sh -c "{load}" >/dev/null 2>&1 < /dev/null &)')
    meta, _ = screen.guest.step(KEY, settle={"max_ms": 30_000})
    assert meta["settle"]["reason"] == "quiet"
    assert meta["settle"]["last_change_ms"] > 150
    assert screen.property("_NET_CLIENT_LIST").count("0x") == 2


def test_the_panels_clock_does_not_count(screen: Desktop) -> None:
    """The panel redraws each second: no change of the frame, no end of quiet."""
    config = screen.home / "tint2rc"
    config.write_text(
        "panel_items = C\npanel_size = 100% 30\npanel_position = bottom center horizontal\n"
        "time1_format = %H:%M:%S\ntime1_font = sans 12\nclock_font_color = #ffffff 100\n"
    )
    screen.run("tint2", "-c", str(config))
    until(lambda: screen.property("_NET_CLIENT_LIST").count("0x") == 1)
    screen.guest.step({"op": "screenshot"}, settle={"policy": "fixed", "pause_ms": 300})
    meta, _ = screen.guest.step({"op": "screenshot"})
    first = frame_hash(screen)
    wait_for_changes(screen, 2)
    meta, _ = screen.guest.step({"op": "screenshot"})
    assert meta["previous"]["final"] is True
    assert meta["frame"]["hash"] != first, "the clock runs, and is in the frame"


def test_a_blinking_caret_does_not_count(screen: Desktop) -> None:
    """A text caret is a thin bar of one colour."""
    screen.home.joinpath("a.txt").write_text("")
    screen.open("mousepad", str(screen.home / "a.txt"))
    screen.guest.step({"op": "type", "text": "a"})
    wait_for_changes(screen, 5)
    frames = {screen.guest.observe(format="none")[0]["frame"]["hash"] for _ in _for(1.5)}
    assert len(frames) > 1, "the caret blinks"
    meta, _ = screen.guest.step({"op": "screenshot"})
    assert meta["previous"]["final"] is True
    assert meta["settle"]["last_change_ms"] is None


def test_a_caret_on_a_letter_with_a_soft_edge_does_not_count(screen: Desktop) -> None:
    """A caret is told apart even where a program draws its edge between two pixels or onto a letter."""
    screen.run(sys.executable, soft_caret.__file__)
    until(lambda: screen.property("_NET_CLIENT_LIST").count("0x") == 1)
    wait_for_changes(screen, 1)  # the letter is drawn
    screen.guest.step({"op": "screenshot"})
    wait_for_changes(screen, 4)
    frames = {screen.guest.observe(format="none")[0]["frame"]["hash"] for _ in _for(1.5)}
    assert len(frames) > 1, "the caret blinks"
    meta, _ = screen.guest.step({"op": "screenshot"})
    assert meta["previous"]["final"] is True
    assert meta["settle"]["last_change_ms"] is None


def frame_hash(screen: Desktop) -> str:
    """Return the hash of what the screen shows now."""
    found: str = screen.guest.observe(format="none")[0]["frame"]["hash"]
    return found


def wait_for_changes(screen: Desktop, count: int) -> None:
    """Wait until the screen changed so many times."""
    for _ in range(count):
        before = frame_hash(screen)
        until(lambda shown=before: frame_hash(screen) != shown)


def _for(seconds: float) -> Iterator[float]:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        yield end
        time.sleep(0.1)


def test_actions_of_a_list_wait_for_each_other(screen: Desktop) -> None:
    """Text typed right after a click goes where the click put the focus."""
    for name, x in (("left", 10), ("right", 640)):
        out = screen.home / name
        copy = f"stty -icanon; exec cat > {out}"
        screen.open("xterm", "-geometry", f"60x20+{x}+100", "-e", "sh", "-c", copy)
        until(out.exists)
    for at in range(6):
        x, text = ((200, "l"), (900, "r"))[at % 2]
        screen.guest.step({"op": "click", "x": x, "y": 250}, {"op": "type", "text": text * 3})
    until(lambda: len((screen.home / "right").read_text()) == 9)
    assert (screen.home / "left").read_text() == "l" * 9
    assert (screen.home / "right").read_text() == "r" * 9


def test_the_signals_can_be_traced(tmp_path: Path) -> None:
    """One JSON object per turn, change and settle, for measurements."""
    trace = tmp_path / "trace.jsonl"
    with desktop(tmp_path, agent=False) as screen:
        screen.start_agent(OSGYM_SETTLE_TRACE=str(trace))
        screen.guest.json("POST", "/v1/ready", {"timeout_s": 20})
        screen.open("xterm", "-e", "cat")
        screen.guest.step({"op": "type", "text": "hello"}, settle={"policy": "fixed", "pause_ms": 100})
    lines = [json.loads(line) for line in trace.read_text().splitlines()]
    begins = [at for at, line in enumerate(lines) if "begin" in line]
    last = lines[begins[-1] :]
    assert {name for _, _, name in last[0]["procs"]} >= {"Xvfb", "openbox", "xterm"}
    assert len([line for line in last if "t" in line]) > 20
    assert any("d" in line and line["n"] > 0 for line in last)
    assert last[-1]["end"] == 3


def test_a_click_on_the_panel_waits_for_the_panel(screen: Desktop) -> None:
    """A click on the panel acts through the panel, so the program that the panel starts is waited for."""
    config = screen.home / "tint2rc"
    config.write_text(
        "panel_items = P\npanel_size = 100% 30\npanel_position = bottom center horizontal\n"
        "button = new\nbutton_text = start\nbutton_lclick_command = xterm -geometry 20x5+300+200\n"
    )
    screen.run("tint2", "-c", str(config))
    until(lambda: screen.property("_NET_CLIENT_LIST").count("0x") == 1)
    screen.guest.step({"op": "screenshot"}, settle={"policy": "fixed", "pause_ms": 500})
    meta, _ = screen.guest.step({"op": "click", "x": 20, "y": 785})
    assert meta["settle"]["reason"] == "quiet"
    assert meta["settle"]["last_change_ms"] is not None
    assert screen.property("_NET_CLIENT_LIST").count("0x") == 2


SLOW_PANEL = Path(soft_caret.__file__).with_name("slow_panel.py")
BUTTON_COLOUR = (0x40, 0x80, 0xC0)


def start_panel(screen: Desktop, work_s: float, clock_hz: float) -> None:
    """Start a panel that needs a time to show a new window."""
    screen.run("/usr/bin/python3", str(SLOW_PANEL), str(work_s), str(clock_hz))
    until(lambda: screen.property("_NET_CLIENT_LIST").count("0x") == 1)
    screen.guest.json("POST", "/v1/ready", {"timeout_s": 20})


def button_count(screen: Desktop) -> int:
    """Return how many windows the panel shows."""
    row = screen.guest.image().crop((0, screen.size[1] - 5, screen.size[0], screen.size[1] - 4))
    colours = {colour: count for count, colour in row.getcolors(1 << 16) or ()}
    return colours.get(BUTTON_COLOUR, 0) // 40


def test_a_desktop_is_at_rest_when_its_panel_shows_the_new_window(screen: Desktop) -> None:
    """`ready`, which first frames wait for, waits until the panel shows the window's button."""
    start_panel(screen, 0.7, 0)
    terminal = "(setsid xterm -geometry 20x5+500+100 >/dev/null 2>&1 < /dev/null &)"
    react(screen, terminal)
    screen.guest.json("POST", "/v1/ready", {"timeout_s": 20})
    assert button_count(screen) == 2
    meta, _ = screen.guest.step(KEY)
    assert meta["settle"]["reason"] == "quiet"
    assert screen.property("_NET_CLIENT_LIST").count("0x") == 3
    screen.guest.json("POST", "/v1/ready", {"timeout_s": 20})
    assert button_count(screen) == 3


def test_a_panels_clock_delays_a_desktop_at_rest_for_a_bounded_time(tmp_path: Path) -> None:
    """A panel that never rests delays `ready` for a bounded time, and steps not at all."""
    settle = tmp_path / "settle.json"
    settle.write_text(json.dumps({"ready": {"panel_ms": 600}}))
    with desktop(tmp_path, agent=False) as screen:
        screen.start_agent(OSGYM_SETTLE=str(settle))
        screen.guest.json("POST", "/v1/ready", {"timeout_s": 20})
        screen.run("/usr/bin/python3", str(SLOW_PANEL), "0", "50")
        until(lambda: screen.property("_NET_CLIENT_LIST").count("0x") == 1)
        began = time.monotonic()
        screen.guest.json("POST", "/v1/ready", {"timeout_s": 20})
        assert 0.6 <= time.monotonic() - began < 5
        meta, _ = screen.guest.step({"op": "move", "x": 30, "y": 30})
        assert meta["settle"]["wait_ms"] < 500


def test_a_program_that_waits_for_an_answer_before_its_window_is_waited_for(screen: Desktop) -> None:
    """A launched program whose main thread waits at a socket for a server is still starting."""
    code = (
        "import os, socket, sys, time; a, b = socket.socketpair(); pid = os.fork()\n"
        "if not pid: time.sleep(1); b.send(b'x'); os._exit(0)\n"
        "a.recv(1); os.execvp('xterm', ['xterm', '-geometry', '20x5+500+100'])"
    )
    screen.guest.call("POST", "/setup/launch", {"command": [sys.executable, "-c", code]})
    screen.guest.json("POST", "/v1/ready", {"timeout_s": 20})
    assert screen.property("_NET_CLIENT_LIST").count("0x") == 1


def test_a_server_that_was_launched_is_not_waited_for(tmp_path: Path) -> None:
    """A launched program that waits for connections has started."""
    settle = tmp_path / "settle.json"
    settle.write_text(json.dumps({"ready": {"call_ms": 15_000}}))
    with desktop(tmp_path, agent=False) as screen:
        screen.start_agent(OSGYM_SETTLE=str(settle))
        screen.guest.json("POST", "/v1/ready", {"timeout_s": 20})
        launch_server(screen)
        began = time.monotonic()
        screen.guest.json("POST", "/v1/ready", {"timeout_s": 20})
        assert time.monotonic() - began < 10


def test_a_plain_xlib_program_with_its_window_is_not_waited_for(tmp_path: Path) -> None:
    """A program that waits at its X connection alone, and has its window, waits for its user."""
    settle = tmp_path / "settle.json"
    settle.write_text(json.dumps({"ready": {"call_ms": 19_000}}))
    with desktop(tmp_path, agent=False) as screen:
        screen.start_agent(OSGYM_SETTLE=str(settle))
        screen.guest.json("POST", "/v1/ready", {"timeout_s": 20})
        screen.guest.call("POST", "/setup/launch", {"command": ["xev", "-geometry", "300x200+100+100"]})
        until(lambda: screen.property("_NET_CLIENT_LIST").count("0x") == 1)
        began = time.monotonic()
        screen.guest.json("POST", "/v1/ready", {"timeout_s": 40})
        assert time.monotonic() - began < 15


def launch_server(screen: Desktop) -> None:
    """Launch a program whose main thread waits for connections, and wait until it does."""
    code = (
        "import select, socket; s = socket.create_server(('127.0.0.1', 0)); open('up', 'w').close(); "
        "p = select.poll(); p.register(s, select.POLLIN); p.poll()"
    )
    screen.guest.call("POST", "/setup/launch", {"command": [sys.executable, "-c", code]})
    until(lambda: (screen.home / "up").exists())
