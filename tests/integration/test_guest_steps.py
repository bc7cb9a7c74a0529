"""Sequence numbers, readiness, the token, restarts and the end of the guest agent."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import pytest
from tests.support.guest_rig import Desktop, Guest, GuestFault, desktop, until, until_serving

from osgym_guest import engine
from osgym_guest._native import Display
from osgym_guest.screen import ScreenController
from osgym_guest.settle import load_policies
from osgym_protocol import limits
from osgym_protocol.actions import Wait, check_encoded_size
from osgym_protocol.codes import ImageFormat, SettlePolicy
from osgym_protocol.options import ObserveOptions, SettleOptions


@pytest.fixture
def screen(tmp_path: Path) -> Iterator[Desktop]:
    """A small desktop of its own."""
    with desktop(tmp_path, size=(640, 480)) as made:
        yield made


def test_a_repeated_step_is_answered_and_not_done_again(screen: Desktop) -> None:
    """The stored answer comes back, marked; the pointer has moved once."""
    guest = screen.guest
    body: dict[str, Any] = {"seq": 1, "actions": [{"op": "move", "x": 50, "y": 60}]}
    first, image = guest.record("/v1/step", body)
    assert (first["seq"], first["replayed"], first["previous"]) == (1, False, None)
    guest.record("/v1/step", {"seq": 2, "actions": [{"op": "move", "x": 70, "y": 80}]})
    body = {"seq": 2, "actions": [{"op": "move", "x": 1, "y": 1}]}
    again, same = guest.record("/v1/step", body)
    assert again["replayed"] is True and again["seq"] == 2
    assert guest.record("/v1/step", body) == (again, same)
    assert guest.call("GET", "/cursor_position").replace(b" ", b"") == b"[70,80]"
    assert image[:4] == same[:4] == b"\x89PNG"


@pytest.mark.parametrize("seq", [0, -1, 1.5, "1", None, True])
def test_a_number_that_is_none_is_refused(screen: Desktop, seq: Any) -> None:
    """A sequence number is a whole number from 1."""
    with pytest.raises(GuestFault) as caught:
        screen.guest.record("/v1/step", {"seq": seq, "actions": []})
    assert (caught.value.status, caught.value.code) == (400, "bad_request")


def test_the_largest_step_that_the_host_sends_is_read(screen: Desktop) -> None:
    """A body with all the actions that the bound allows is judged by its actions, and goes on from there."""
    text = {"op": "type", "text": "x" * (limits.MAX_TEXT_CHARS - 100)}
    raw = [*[text] * (limits.MAX_STEP_ACTIONS_BYTES // limits.MAX_TEXT_CHARS), {"op": "no such thing"}]
    check_encoded_size(raw)
    with pytest.raises(GuestFault) as caught:
        screen.guest.record("/v1/step", {"seq": 1, "actions": raw})
    fault = caught.value
    assert (fault.status, fault.code, fault.details) == (400, "invalid_action", {"index": len(raw) - 1})
    screen.guest.step()


def test_other_numbers_are_refused(screen: Desktop) -> None:
    """Only the last and the next one are taken; the answer names the last."""
    guest = screen.guest
    guest.step()
    guest.step()
    for seq in (1, 4):
        with pytest.raises(GuestFault) as caught:
            guest.record("/v1/step", {"seq": seq, "actions": []})
        fault = caught.value
        assert (fault.status, fault.code, fault.details) == (409, "bad_sequence", {"last_seq": 2})
    assert guest.json("GET", "/v1/health")["last_seq"] == 2


def test_the_same_step_twice_at_once_acts_once(screen: Desktop) -> None:
    """The second waits for the first and gets its answer; another number is told to wait."""
    guest = screen.guest
    body = {"seq": 1, "actions": [{"op": "wait", "duration_ms": 400}]}
    answers: list[dict[str, Any]] = []

    def call() -> None:
        answers.append(guest.record("/v1/step", body)[0])

    threads = [threading.Thread(target=call) for _ in range(2)]
    for thread in threads:
        thread.start()
    until(lambda: _is_busy(guest))
    for thread in threads:
        thread.join()
    assert sorted(answer["replayed"] for answer in answers) == [False, True]
    assert answers[0]["frame"] == answers[1]["frame"]


def _is_busy(guest: Guest) -> bool:
    try:
        guest.record("/v1/step", {"seq": 99, "actions": []})
    except GuestFault as fault:
        assert fault.status == 409
        return fault.code == "busy"
    return False


def test_unknown_fields_and_bad_json_are_refused(screen: Desktop) -> None:
    """A mistyped field is an error, not ignored."""
    for body in ({"seq": 1, "action": []}, {"seq": 1, "actions": {}}, {"seq": 1, "settle": {"policy": "x"}}):
        with pytest.raises(GuestFault) as caught:
            screen.guest.record("/v1/step", body)
        assert caught.value.status == 400
    assert screen.guest.raw("POST", "/v1/step", b"{")[0] == 400
    assert screen.guest.json("GET", "/v1/health")["last_seq"] == 0


def test_a_restarted_agent_knows_the_last_number(screen: Desktop) -> None:
    """A step is never done twice across a restart; the next one works on the same desktop."""
    guest = screen.guest
    guest.step({"op": "move", "x": 11, "y": 12})
    assert screen.agent is not None
    screen.agent.kill()
    screen.agent.wait()
    guest = screen.start_agent()
    until_serving(guest)
    with pytest.raises(GuestFault) as caught:
        guest.record("/v1/step", {"seq": 1, "actions": []})
    assert (caught.value.status, caught.value.code) == (409, "answer_lost")
    guest.seq = 1
    guest.step({"op": "screenshot"})
    assert guest.call("GET", "/cursor_position").replace(b" ", b"") == b"[11,12]"


def test_another_generation_starts_at_one(screen: Desktop) -> None:
    """A state file that came with the image of another replica does not count."""
    screen.guest.step()
    assert screen.agent is not None
    screen.agent.kill()
    screen.agent.wait()
    guest = screen.start_agent(OSGYM_GENERATION="g2")
    until_serving(guest)
    health = guest.json("GET", "/v1/health")
    assert (health["last_seq"], health["generation"]) == (0, "g2")


def test_a_killed_x_server_ends_the_agent_with_3(screen: Desktop) -> None:
    """The agent ends at once, even while nobody calls it."""
    assert screen.agent is not None
    screen.server.kill()
    assert screen.agent.wait(5) == 3


def test_sigterm_ends_it_with_0_also_in_the_middle_of_a_step(screen: Desktop) -> None:
    """The agent ends without waiting for a step that still runs."""
    assert screen.agent is not None
    guest = screen.guest
    body = {"seq": 1, "actions": [], "settle": {"policy": "fixed", "pause_ms": 20_000}}
    thread = threading.Thread(target=lambda: _ignore(guest, body))
    thread.start()
    until(lambda: _is_busy(guest))
    started = time.monotonic()
    screen.agent.send_signal(signal.SIGTERM)
    assert screen.agent.wait(5) == 0
    assert time.monotonic() - started < 3
    thread.join()


def _ignore(guest: Guest, body: dict[str, Any]) -> None:
    with contextlib.suppress(GuestFault, OSError, ValueError, http.client.HTTPException):
        guest.record("/v1/step", body)


def test_ready_waits_for_the_window_manager_and_the_expected_windows(tmp_path: Path) -> None:
    """The answer is 504 while they are missing and comes as soon as they are there."""
    with desktop(tmp_path, size=(640, 480), wm=False, agent=False) as screen:
        guest = screen.start_agent(OSGYM_EXPECT="dock")
        until_serving(guest)
        with pytest.raises(GuestFault) as caught:
            guest.json("POST", "/v1/ready", {"timeout_s": 0.2})
        assert (caught.value.status, caught.value.code) == (504, "not_ready")
        screen.start_wm()
        with pytest.raises(GuestFault):
            guest.json("POST", "/v1/ready", {"timeout_s": 0.3})
        assert guest.json("GET", "/v1/health")["desktop_ready"] is False
        screen.run("tint2")
        assert guest.json("POST", "/v1/ready", {"timeout_s": 20})["desktop_ready"] is True


def test_the_token_guards_every_endpoint(tmp_path: Path) -> None:
    """No endpoint answers without the token, health included."""
    with desktop(tmp_path, size=(640, 480), wm=False, agent=False) as screen:
        guest = screen.start_agent(OSGYM_TOKEN="sesame")
        until_serving(guest)
        assert guest.raw("GET", "/v1/health")[0] == 200
        for token in ("", "sesam", "sesame2"):
            assert Guest(tmp_path / "agent.sock", token).raw("GET", "/v1/health")[0] == 401


def test_it_serves_while_the_x_server_is_not_up(tmp_path: Path) -> None:
    """Health answers, a step is told to come back, and the agent gives up after its time with 3."""
    with desktop(tmp_path, size=(640, 480), wm=False, agent=False) as screen:
        screen.server.kill()
        screen.server.wait()
        guest = screen.start_agent(OSGYM_DISPLAY_WAIT_S="0.7")
        assert guest.json("GET", "/v1/health")["desktop_ready"] is False
        with pytest.raises(GuestFault) as caught:
            guest.step()
        assert (caught.value.status, caught.value.code) == (503, "not_ready")
        assert screen.agent is not None and screen.agent.wait(5) == 3


def test_settings_that_make_no_sense_are_refused(tmp_path: Path) -> None:
    """Exit code 2 and a message, not a traceback later."""
    with desktop(tmp_path, size=(640, 480), wm=False, agent=False) as screen:
        screen.start_agent(OSGYM_EXPECT="curtains")
        assert screen.agent is not None and screen.agent.wait(5) == 2


class _SlowQueue(SimpleQueue[Any]):
    """A queue whose reader has run with what was put before the writer goes on."""

    def put(self, item: Any, block: bool = True, timeout: float | None = None) -> None:
        super().put(item, block, timeout)
        if item is not None:
            time.sleep(0.2)


async def test_a_step_may_begin_before_the_event_loop_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The number of a step is noted before the display's thread can begin it."""
    monkeypatch.setattr(engine, "SimpleQueue", _SlowQueue)
    with desktop(tmp_path, size=(640, 480), wm=False, agent=False) as screen:
        state = engine.Engine(on_gone=lambda: None)
        state.attach(ScreenController(Display(screen.display), load_policies(None)))
        settle = SettleOptions(SettlePolicy.FIXED, pause_ms=0)
        try:
            for seq in (1, 2):
                request = engine.CheckedStep(seq, [], settle, ObserveOptions(ImageFormat.NONE))
                assert (await state.step(request)).observation.seq == seq
                assert state.steps.find(seq) is not None
        finally:
            state.close()


async def test_a_step_that_the_end_cuts_short_says_nothing(tmp_path: Path) -> None:
    """A step whose display is closed at the end of the event loop reports nothing."""
    complaints: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
    with desktop(tmp_path, size=(640, 480), wm=False, agent=False) as screen:
        state = engine.Engine(on_gone=lambda: None)
        state.attach(ScreenController(Display(screen.display), load_policies(None)))
        settle = SettleOptions(SettlePolicy.FIXED, pause_ms=0)
        request = engine.CheckedStep(1, [Wait(60_000)], settle, ObserveOptions(ImageFormat.NONE))
        step = state.step(request)
        state.close()
        assert (await asyncio.wait_for(step, 20)).observation.seq == 1
    assert complaints == []
