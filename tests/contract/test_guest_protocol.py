"""Guest protocol v1: the same tests against the guest agent, the agentless guest and OSWorld's adapter."""

from __future__ import annotations

import io
import json
import threading
from collections.abc import Iterator
from http.client import HTTPException
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from tests.support.guest_kits import KITS, GuestKit, missing
from tests.support.guest_rig import Guest, GuestFault, until

from osgym_protocol.limits import MAX_ACTIONS, MAX_DURATION_MS, MAX_KEY_REPEAT, MAX_TEXT_CHARS
from osgym_protocol.observation import Observation

FIXED = {"policy": "fixed", "pause_ms": 30}
LOOK = {"op": "screenshot"}
pytestmark = pytest.mark.timeout(120)


@pytest.fixture(scope="module", params=list(KITS))
def kit(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[GuestKit]:
    """One guest of each kind for all tests: they go on with its numbers."""
    if lacking := missing(request.param):
        pytest.skip(f"missing: {lacking}")
    with KITS[request.param](tmp_path_factory.mktemp(request.param)) as kit:
        yield kit


@pytest.fixture
def guest(kit: GuestKit) -> Guest:
    """Its client, with the next number right."""
    kit.guest.seq = kit.guest.json("GET", "/v1/health")["last_seq"]
    return kit.guest


def fault(guest: Guest, target: str, body: Any) -> GuestFault:
    """How a request is refused."""
    with pytest.raises(GuestFault) as caught:
        guest.call("POST", target, body)
    return caught.value


def next_step(guest: Guest, *actions: dict[str, Any], **fields: Any) -> dict[str, Any]:
    """The body of the next step."""
    return {"seq": guest.seq + 1, "actions": list(actions), "settle": FIXED, **fields}


def pointer(guest: Guest) -> list[int]:
    """Where it is."""
    found = json.loads(guest.call("GET", "/cursor_position"))
    assert isinstance(found, list)
    return found


def test_health_says_who_it_is_and_how_far(kit: GuestKit, guest: Guest) -> None:
    """Every field, of its kind."""
    health = guest.json("GET", "/v1/health")
    kinds = {name: type(value) for name, value in health.items()}
    assert kinds.pop("uptime_s") in (int, float)
    assert kinds == {
        "status": str,
        "version": str,
        "generation": str,
        "desktop_ready": bool,
        "last_seq": int,
    }
    assert (health["status"], health["generation"]) == ("ok", kit.generation)


def test_ready_answers_like_health(guest: Guest) -> None:
    """Once the desktop is drawn and quiet; a time that is none is refused."""
    ready = guest.json("POST", "/v1/ready", {"timeout_s": 20})
    assert ready["desktop_ready"] is True
    assert set(ready) == set(guest.json("GET", "/v1/health"))
    for body in ({"timeout_s": "soon"}, {"timeout_s": -1}, {"timeout": 1}):
        assert fault(guest, "/v1/ready", body).code == "bad_request"


def test_a_step_answers_with_an_observation(guest: Guest) -> None:
    """Its meta is what the protocol says, nothing missing and nothing besides."""
    meta, image = guest.step({"op": "move", "x": 20, "y": 30}, LOOK)
    observation = Observation.from_dict(meta)
    assert observation.to_dict() == meta
    assert (observation.seq, observation.replayed, observation.failed_index) == (guest.seq, False, None)
    assert [(result.ok, result.op) for result in observation.results] == [
        (True, "move"),
        (True, "screenshot"),
    ]
    assert observation.settle is not None and observation.settle.policy == "exact"
    assert set(observation.timing_ms) == {"input", "settle", "capture", "encode", "total"}
    assert Image.open(io.BytesIO(image)).size == observation.frame.screen
    assert pointer(guest) == [20, 30]
    after = guest.step()[0]
    assert after["previous"]["seq"] == guest.seq - 1


def test_a_repeated_step_is_answered_and_not_done_again(guest: Guest) -> None:
    """The stored answer comes back, marked, whatever else the repetition says."""
    first = guest.step({"op": "move", "x": 41, "y": 42})
    body = {"seq": guest.seq, "actions": [{"op": "move", "x": 1, "y": 1}]}
    again = guest.record("/v1/step", body)
    assert again == ({**first[0], "replayed": True}, first[1])
    assert pointer(guest) == [41, 42]


def test_other_numbers_are_refused_and_the_last_is_named(guest: Guest) -> None:
    """Neither the last nor the next; and what is no number."""
    guest.step()
    for seq in (guest.seq - 1, guest.seq + 2):
        refused = fault(guest, "/v1/step", {"seq": seq, "actions": []})
        last = {"last_seq": guest.seq}
        assert (refused.status, refused.code, refused.details) == (
            (409, "bad_sequence", last) if seq > 0 else (400, "bad_request", {})
        )
    for seq in (0, -1, 1.5, "1", None, True):
        refused = fault(guest, "/v1/step", {"seq": seq, "actions": []})
        assert (refused.status, refused.code) == (400, "bad_request")
    assert guest.json("GET", "/v1/health")["last_seq"] == guest.seq


INVALID: dict[str, tuple[list[dict[str, Any]], int]] = {
    "no such op": ([{"op": "fly"}], 0),
    "outside the screen": ([LOOK, {"op": "move", "x": 5000, "y": 1}], 1),
    "below the screen": ([{"op": "click", "x": -1, "y": 1}], 0),
    "unknown field": ([{"op": "wait", "duration_ms": 1, "why": "x"}], 0),
    "no such key": ([LOOK, LOOK, {"op": "key", "keys": ["hyperspace"]}], 2),
    "too often": ([{"op": "key", "keys": ["a"], "repeat": MAX_KEY_REPEAT + 1}], 0),
    "too long": ([{"op": "wait", "duration_ms": MAX_DURATION_MS}, {"op": "wait", "duration_ms": 1}], 1),
    "too much text": ([{"op": "type", "text": "x" * (MAX_TEXT_CHARS + 1)}], 0),
    "no character": ([{"op": "type", "text": "a\x01"}], 0),
    "too many": ([LOOK] * (MAX_ACTIONS + 1), 0),
}


@pytest.mark.parametrize("name", list(INVALID))
def test_an_invalid_action_uses_up_no_number(guest: Guest, name: str) -> None:
    """Nothing of the list is done, and the answer says which one is wrong."""
    guest.step({"op": "move", "x": 7, "y": 8})
    actions, index = INVALID[name]
    body = next_step(guest, {"op": "move", "x": 3, "y": 3}, *actions)
    refused = fault(guest, "/v1/step", body)
    expected = 0 if name == "too many" else index + 1
    assert (refused.status, refused.code, refused.details) == (400, "invalid_action", {"index": expected})
    assert pointer(guest) == [7, 8]
    guest.step()  # the number is free


@pytest.mark.parametrize(
    "fields",
    [
        {"settle": {"policy": "soon"}},
        {"settle": {"policy": "fixed"}},
        {"settle": {"max_ms": MAX_DURATION_MS + 1}},
        {"settle": {"quiet": 1}},
        {"observe": {"format": "gif"}},
        {"observe": {"quality": 0, "format": "jpeg"}},
        {"observe": {"size": [0, 10]}},
        {"observe": {"region": [0, 0, 100_000, 10]}},
        {"observe": {"region": [600, 390, 200, 200]}},
        {"observe": []},
        {"look": {}},
    ],
)
def test_options_that_make_no_sense_use_up_no_number(guest: Guest, fields: dict[str, Any]) -> None:
    """They are the caller's fault, and nothing is done."""
    refused = fault(guest, "/v1/step", next_step(guest, LOOK, **fields))
    assert (refused.status, refused.code) == (400, "bad_request")
    guest.step()


def test_the_same_step_twice_at_once_acts_once(guest: Guest) -> None:
    """The second gets the first one's answer; another number is told that one runs."""
    body = next_step(guest, {"op": "wait", "duration_ms": 700})
    answers: list[dict[str, Any]] = []

    def call() -> None:
        answers.append(guest.record("/v1/step", body)[0])

    threads = [threading.Thread(target=call) for _ in range(2)]
    for thread in threads:
        thread.start()
    until(lambda: _running(guest) == guest.seq + 1)
    for thread in threads:
        thread.join()
    assert sorted(answer["replayed"] for answer in answers) == [False, True]
    assert answers[0]["frame"] == answers[1]["frame"]


def _running(guest: Guest) -> int | None:
    """The number of the step that runs."""
    refused = fault(guest, "/v1/step", {"seq": guest.seq + 99, "actions": []})
    assert refused.status == 409
    return int(refused.details["seq"]) if refused.code == "busy" else None


@pytest.mark.parametrize(
    ("policy", "reason"),
    [
        ("exact", {"quiet", "unchanged"}),
        ("fast", {"quiet", "unchanged"}),
        ("certain", {"quiet", "unchanged"}),
        ("fixed", {"fixed"}),
    ],
)
def test_settle_policies(guest: Guest, policy: str, reason: set[str]) -> None:
    """Each says how its wait ended."""
    extra = {"pause_ms": 60} if policy == "fixed" else {}
    meta = guest.step({"op": "move", "x": 50, "y": 60}, settle={"policy": policy, **extra})[0]
    settle = meta["settle"]
    assert (settle["policy"], settle["reason"] in reason) == (policy, True)
    assert meta.get("final") is (True if policy == "certain" else None)
    assert policy != "fixed" or settle["wait_ms"] >= 60


@pytest.mark.parametrize("image_format", ["png", "jpeg", "webp"])
def test_formats_sizes_and_regions(guest: Guest, image_format: str) -> None:
    """What is sent is what was asked for; the hash is of the whole screen."""
    for _ in range(20):  # the console of a machine without a desktop has a cursor that blinks
        whole = guest.observe()[0]["frame"]
        region = [10, 20, 200, 100]
        meta, image = guest.observe(format=image_format, size=[100, 50], region=region, quality=60)
        if meta["frame"]["hash"] == whole["hash"]:
            break
    shown = Image.open(io.BytesIO(image))
    assert (shown.format, shown.size) == (image_format.upper(), (100, 50))
    frame = meta["frame"]
    assert (frame["format"], frame["width"], frame["height"]) == (image_format, 100, 50)
    assert (frame["screen"], frame["hash"]) == (whole["screen"], whole["hash"])
    assert (meta["results"], meta["settle"], meta["seq"]) == ([], None, guest.seq)


def test_no_image_is_sent_when_none_is_wanted_or_the_hash_is_known(guest: Guest) -> None:
    """`none`, and `unless_hash` of the frame that is there."""
    guest.json("POST", "/v1/ready", {"timeout_s": 20})
    meta, image = guest.observe(format="none")
    assert (image, meta["frame"]["format"], meta["frame"]["unchanged"]) == (b"", "none", False)
    known = meta["frame"]["hash"]
    meta, image = guest.observe(unless_hash=known)
    assert (image, meta["frame"]["unchanged"], meta["frame"]["hash"]) == (b"", True, known)
    meta, image = guest.observe(unless_hash="another")
    assert image and not meta["frame"]["unchanged"]


def test_final_answers_for_the_last_step_only(guest: Guest) -> None:
    """With the frame when it is final, or when the time is up."""
    guest.step(LOOK)
    meta, image = guest.record("/v1/final", {"seq": guest.seq, "timeout_ms": 20_000})
    assert (meta["seq"], meta["final"]) == (guest.seq, True)
    assert meta["settle"]["reason"] in ("quiet", "unchanged")
    assert Image.open(io.BytesIO(image)).size == tuple(meta["frame"]["screen"])
    meta, _ = guest.record("/v1/final", {"seq": guest.seq, "timeout_ms": 0, "observe": {"format": "none"}})
    assert (meta["final"], meta["settle"]["reason"]) == (False, "timeout")
    refused = fault(guest, "/v1/final", {"seq": guest.seq + 1})
    assert (refused.status, refused.code, refused.details) == (409, "bad_sequence", {"last_seq": guest.seq})


def test_a_step_ends_the_wait_for_a_final_frame(guest: Guest) -> None:
    """It is not made to wait for it."""
    guest.step(LOOK)
    outcomes: list[str] = []

    def wait() -> None:
        body = {"seq": guest.seq, "timeout_ms": 30_000, "observe": {"format": "none"}}
        try:
            guest.record("/v1/final", body)
            outcomes.append("waited")
        except GuestFault as exc:
            outcomes.append(exc.code)

    def step_came_second() -> bool:
        waiting = threading.Thread(target=wait)
        waiting.start()
        meta = guest.step(LOOK, settle=FIXED)[0]
        waiting.join()
        assert meta["timing_ms"]["total"] < 20_000
        return outcomes[-1] == "waited"

    until(step_came_second, timeout_s=60)
    assert set(outcomes) <= {"waited", "bad_sequence"}  # the latter when the step was faster


def test_release_lets_go_of_what_is_held(guest: Guest) -> None:
    """And says what it was: keysyms and button numbers."""
    guest.step({"op": "key_down", "key": "shift"}, {"op": "button_down", "x": 5, "y": 5}, settle=FIXED)
    assert guest.json("POST", "/v1/release") == {"released": {"keys": [0xFFE1], "buttons": [1]}}
    assert guest.json("POST", "/v1/release") == {"released": {"keys": [], "buttons": []}}


@pytest.mark.parametrize(
    ("method", "target", "body", "status", "code"),
    [
        ("GET", "/v1/nowhere", b"", 404, "not_found"),
        ("POST", "/v1/step", b"{", 400, "bad_json"),
        ("POST", "/v1/step", b"[1]", 400, "bad_json"),
        ("POST", "/v1/step", b'{"seq": 1} x', 400, "bad_json"),
        ("POST", "/v1/final", b'{"seq": true}', 400, "bad_request"),
        ("POST", "/v1/observe", b'{"frame": 1}', 400, "bad_request"),
    ],
)
def test_errors_have_one_shape(
    guest: Guest, method: str, target: str, body: bytes, status: int, code: str
) -> None:
    """`code`, `message` and `details`, and nothing besides."""
    answered, data = guest.raw(method, target, body)
    error = json.loads(data)
    assert (answered, error["code"]) == (status, code)
    assert set(error) == {"code", "message", "details"} and error["message"]


@pytest.mark.parametrize("name", list(KITS))
def test_a_step_that_was_broken_off_is_never_done_again(name: str, tmp_path: Path) -> None:
    """It had begun: its number is used up, and its answer lost."""
    if lacking := missing(name):
        pytest.skip(f"missing: {lacking}")
    with KITS[name](tmp_path) as kit:
        body = {"seq": 1, "actions": [{"op": "wait", "duration_ms": 1500}], "settle": FIXED}
        ended: list[BaseException] = []

        def call() -> None:
            try:
                kit.guest.record("/v1/step", body)
            except (GuestFault, OSError, HTTPException) as exc:
                ended.append(exc)

        thread = threading.Thread(target=call)
        thread.start()
        until(lambda: kit.guest.json("GET", "/v1/health")["last_seq"] == 1)
        kit.lose_answer()
        thread.join()
        assert len(ended) == 1
        refused = fault(kit.guest, "/v1/step", body)
        assert (refused.status, refused.code, refused.details) == (409, "answer_lost", {"last_seq": 1})
