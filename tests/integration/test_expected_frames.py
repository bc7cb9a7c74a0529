"""Steps that act only on the screen that their policy saw."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.integration.test_guest_settle import SLOW_PANEL, frame_hash, wait_for_changes
from tests.support.guest_rig import Desktop, Guest, GuestFault, desktop, until
from tests.support.host_process import HostProcess
from tests.support.waiting import until as until_async

from osgym_protocol.records import decode_record
from osgym_sdk import AsyncClient, Client, Done, EpisodeEnded

AWAY = {"op": "move", "x": 11, "y": 22}


@pytest.fixture
def screen(tmp_path: Path) -> Iterator[Desktop]:
    """A small desktop of its own."""
    with desktop(tmp_path, size=(640, 480)) as made:
        yield made


def place(guest: Guest) -> bytes:
    """Return where the pointer is."""
    return guest.call("GET", "/cursor_position").replace(b" ", b"")


def test_a_step_acts_on_the_frame_that_it_expects(screen: Desktop) -> None:
    """The hash of any format and region is that of the whole screen."""
    guest = screen.guest
    seen = guest.step({"op": "move", "x": 300, "y": 200}, observe={"format": "none"})[0]
    meta, _ = guest.step(AWAY, expects=seen["frame"]["hash"])
    assert "screen_changed" not in meta
    assert [result["ok"] for result in meta["results"]] == [True]
    assert place(guest) == b"[11,22]"


def test_a_window_that_came_meanwhile_keeps_the_step_from_acting(screen: Desktop) -> None:
    """Nothing is done, the answer shows the window, and the same step gets the same answer."""
    guest = screen.guest
    seen = guest.step({"op": "move", "x": 300, "y": 200})[0]
    before = screen.property("_NET_CLIENT_LIST")
    screen.run("xterm", "-geometry", "30x10+50+50", "-e", "cat")
    until(lambda: screen.property("_NET_CLIENT_LIST") != before)
    body = {"seq": guest.seq + 1, "actions": [AWAY], "expects": seen["frame"]["hash"]}
    meta, image = guest.record("/v1/step", body)
    assert (meta["screen_changed"], meta["results"], meta["seq"]) == (True, [], body["seq"])
    assert meta["frame"]["hash"] == frame_hash(screen) != seen["frame"]["hash"]
    assert image[:4] == b"\x89PNG"
    again, same = guest.record("/v1/step", body)
    assert again == {**meta, "replayed": True}
    assert same == image
    assert place(guest) == b"[300,200]"
    guest.seq += 1
    meta, _ = guest.step(AWAY, expects=meta["frame"]["hash"])
    assert "screen_changed" not in meta
    assert place(guest) == b"[11,22]"


def test_a_panels_clock_counts_only_for_a_step_that_points_at_it(screen: Desktop) -> None:
    """The panel draws without end; the rest of the screen stands still."""
    guest = screen.guest
    screen.run("/usr/bin/python3", str(SLOW_PANEL), "0", "20")
    until(lambda: screen.property("_NET_CLIENT_LIST").count("0x") == 1)
    guest.json("POST", "/v1/ready", {"timeout_s": 20})
    seen = guest.step({"op": "move", "x": 300, "y": 200})[0]["frame"]["hash"]
    wait_for_changes(screen, 2)
    on_panel = {"op": "click", "x": 320, "y": 470}
    meta, _ = guest.step(on_panel, expects=seen, settle={"policy": "fixed", "pause_ms": 0})
    assert meta["screen_changed"] is True
    meta, _ = guest.step(AWAY, expects=seen, settle={"policy": "fixed", "pause_ms": 0})
    assert "screen_changed" not in meta
    assert place(guest) == b"[11,22]"


@pytest.mark.parametrize("expects", ["", 5, ["x"], "x" * 1000])
def test_what_is_no_hash_is_refused(screen: Desktop, expects: Any) -> None:
    """The number is not used up."""
    with pytest.raises(GuestFault) as caught:
        screen.guest.record("/v1/step", {"seq": 1, "actions": [AWAY], "expects": expects})
    assert (caught.value.status, caught.value.code) == (400, "bad_request")
    assert screen.guest.json("GET", "/v1/health")["last_seq"] == 0


@pytest.mark.desktop
async def test_a_dialog_that_came_meanwhile_gets_no_click(client: AsyncClient) -> None:
    """The step is in the trajectory and counts, but did nothing, its ending neither."""
    async with client.episode(max_steps=3) as episode:
        seen = episode.observation
        await episode.execute("setsid xterm -geometry 40x10+300+300 >/dev/null 2>&1 </dev/null &")
        await until_async(lambda: _changed(episode, seen.hash))
        obs = await episode.step([AWAY, {"op": "done"}], expects=seen)
        assert obs.screen_changed
        assert (obs.actions, obs.results, obs.done, obs.step) == ((), (), None, 1)
        assert obs.refused is not None
        [record] = episode.trajectory.steps
        assert record.screen_changed and record.requested and not record.executed
        obs = await episode.step(AWAY, expects=obs)
        assert not obs.screen_changed and len(obs.actions) == 1
        obs = await episode.step(AWAY, expects="0" * 16)
        assert (obs.screen_changed, obs.done) == (True, Done.MAX_STEPS)
        with pytest.raises(EpisodeEnded):
            await episode.step(AWAY)


async def _changed(episode: Any, known: str) -> bool:
    return bool((await episode.observe()).hash != known)


@pytest.mark.desktop
def test_raw_http_and_the_waiting_client(host: HostProcess) -> None:
    """A repetition gives the stored refusal, and the recorded line has it."""
    with Client(host.url) as client, client.episode() as episode:
        assert not episode.step(AWAY, expects=episode.observation).screen_changed
        ticket = episode.ticket
        with httpx.Client(base_url=host.url, timeout=30) as http:
            path = f"/v1/episodes/{ticket.episode_id}"
            body = {"lease": ticket.lease, "seq": 2, "actions": [AWAY, {"op": "done"}], "expects": "f" * 16}
            first, second = (decode_record(http.post(f"{path}/step", json=body).content) for _ in range(2))
            assert first.meta["observation"]["screen_changed"] is True
            assert (first.meta["actions"], first.meta["done"], first.meta["step"]) == ([], None, 2)
            assert second.meta["observation"] == {**first.meta["observation"], "replayed": True}
            [line] = [
                line for line in http.get(f"{path}/lines").json()["lines"] if line.get("seq") == body["seq"]
            ]
            assert line["observation"]["screen_changed"] is True
            refused = http.post(f"{path}/step", json={**body, "seq": 3, "expects": ""})
            assert (refused.status_code, refused.json()["code"]) == (422, "bad_request")
