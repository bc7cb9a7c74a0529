"""Real desktops, stepped and scored through the real SDK."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from typing import Any

import pytest
from PIL import ImageChops
from tests.support.host_process import HostProcess, osgym, wait_until

from osgym_sdk import AsyncClient, AsyncEpisode, Client, EpisodeLost, InvalidAction, Result

pytestmark = pytest.mark.desktop

UNICODE = "héllo <wörld> ☃ 日本語 Ω≈ç 'q' \"d\" \\ $HOME"


def wrote(text: str, name: str = "/tmp/typed") -> dict[str, Any]:
    """A task with an open terminal, scored by what is in a file."""
    return {
        "id": "wrote",
        "instruction": f"Write {text} to {name}.",
        "config": [
            {"type": "launch", "parameters": {"command": ["xfce4-terminal", "--geometry=100x30+200+150"]}},
            {
                "type": "execute_with_verification",
                "parameters": {
                    "command": ["true"],
                    "verification": {"window_exists": "Terminal"},
                    "max_wait_time": 30,
                    "check_interval": 0.1,
                },
            },
        ],
        "evaluator": {
            "func": "exact_match",
            "result": {"type": "vm_command_line", "command": ["cat", name]},
            "expected": {"type": "rule", "rules": {"expected": text + "\n"}},
        },
    }


def typing(text: str, name: str = "/tmp/typed") -> list[dict[str, Any]]:
    """Into a here-document, so that the shell takes nothing of it for its own."""
    return [
        {"op": "click", "x": 500, "y": 350},
        {"op": "type", "text": f"cat > {name} <<'EOT'\n{text}\nEOT\n"},
    ]


async def test_the_first_frame_is_a_drawn_desktop(episode: AsyncEpisode) -> None:
    """A full-size lossless picture with something on it."""
    image = episode.observation.image
    assert (image.size, episode.observation.data[:4]) == ((1920, 1080), b"\x89PNG")
    assert len(image.resize((192, 108)).getcolors(192 * 108) or []) > 50


async def test_typed_unicode_is_read_back(client: AsyncClient) -> None:
    """What was typed into a terminal is in the file, character by character, and scores 1."""
    async with client.episode(wrote(UNICODE)) as episode:
        obs = await episode.step(typing(UNICODE))
        assert obs.failed_index is None and [r.op for r in obs.results] == ["click", "type"]
        await obs.final()
        evaluation = await episode.evaluate()
        assert (evaluation.reward, evaluation.failure) == (1.0, None), evaluation.details


async def test_doing_nothing_scores_nothing(client: AsyncClient) -> None:
    """The same task without the typing is an honest 0, not a failure."""
    async with client.episode(wrote(UNICODE)) as episode:
        evaluation = await episode.evaluate()
        assert (evaluation.reward, evaluation.failure, evaluation.valid_for_training) == (0.0, None, True)


async def test_an_episode_inherits_nothing(client: AsyncClient) -> None:
    """Files of one episode are not in the next; the generation proves another clone."""
    async with client.episode(wrote("secret")) as first:
        await first.step(typing("secret"))
        assert (await first.evaluate()).reward == 1.0
        generation = first.generation
    async with client.episode(wrote("secret")) as second:
        assert second.generation != generation
        assert (await second.evaluate()).reward == 0.0


async def test_the_screen_shows_what_was_done(episode: AsyncEpisode) -> None:
    """A right click opens a menu, Escape closes it; hashes and pictures agree."""
    first = episode.observation
    menu = await episode.step("right_single(1200,400)")
    assert ImageChops.difference(first.image, menu.image).getbbox() is not None
    assert menu.hash != first.hash and menu.settle is not None
    closed = await episode.step("press(escape)")
    assert closed.previous is not None and closed.previous.seq == menu.seq
    assert closed.timing is not None
    assert closed.timing.total_ms == pytest.approx(
        closed.timing.overhead_ms + closed.timing.settle_ms, abs=0.01
    )


async def test_final_gives_the_frame_that_came_later(client: AsyncClient) -> None:
    """With no wait the first frame comes too early; final() gives the one at rest, and says so."""
    async with client.episode(wrote("x")) as episode:
        await episode.step({"op": "click", "x": 500, "y": 350})
        early = await episode.step(
            "type(sleep 0.7; clear; seq 1 20\n)", settle={"policy": "fixed", "pause_ms": 0}
        )
        await asyncio.sleep(1.2)
        final = await early.final(timeout_s=5)
        assert final.is_final and final.hash != early.hash
        nxt = await episode.step({"op": "screenshot"})
        assert nxt.previous is not None and nxt.previous.seq == early.seq
        assert not nxt.previous.final and nxt.previous.changed_after_ms
        assert episode.trajectory.steps[1].final is False


async def test_images_as_asked_for(episode: AsyncEpisode) -> None:
    """JPEG, WebP, scaled, cropped, none."""
    jpeg = await episode.observe({"format": "jpeg", "size": [1260, 700]})
    assert (jpeg.image.size, jpeg.size, jpeg.screen) == ((1260, 700), (1260, 700), (1920, 1080))
    assert jpeg.data[:2] == b"\xff\xd8" and jpeg.png[:4] == b"\x89PNG"
    crop = await episode.observe({"region": [100, 50, 300, 200]})
    assert crop.image.size == (300, 200)
    full = await episode.observe()
    assert ImageChops.difference(full.image.crop((100, 50, 400, 250)), crop.image).getbbox() is None
    assert (await episode.observe("webp")).image.size == (1920, 1080)
    assert (await episode.observe("none")).data == b""


async def test_an_unchanged_screen_is_not_sent_again(episode: AsyncEpisode) -> None:
    """Nothing moves: the same bytes are used again."""
    first = await episode.step({"op": "screenshot"})
    second = await episode.step({"op": "screenshot"})
    if second.hash == first.hash:  # the panel's clock may have moved on
        assert second.unchanged and second.data is first.data


async def test_bad_actions_are_refused_with_a_reason(episode: AsyncEpisode) -> None:
    """Nonsense, and coordinates off the screen; nothing is clamped, the episode goes on."""
    with pytest.raises(InvalidAction, match=r"teleport"):
        await episode.step("teleport(1,2)")
    try:
        obs = await episode.step(["click(100,100)", "click(5000,10)", "click(1,1)"])
    except InvalidAction:
        pass
    else:
        assert obs.failed_index == 1 and len(obs.results) == 2
    assert (await episode.step("move(50,50)")).step >= 1


async def test_the_end_by_the_policy(client: AsyncClient) -> None:
    """finish() and max_steps end the episode; scoring still works."""
    async with client.episode(wrote("x"), max_steps=2) as episode:
        assert (await episode.step("move(1,1)")).done is None
        obs = await episode.step("move(2,2)")
        assert obs.done is not None and obs.done.value == "max_steps"
        assert (await episode.evaluate()).reward == 0.0
    async with client.episode(wrote("x")) as episode:
        obs = await episode.step("finish()")
        assert obs.done is not None and obs.done.value == "done"


async def test_a_batch_on_real_desktops(client: AsyncClient) -> None:
    """More tasks than warm desktops; each result has its own reward."""

    def policy(obs: Any, task: Any, step: int) -> Any:
        text = task["instruction"].split()[1]
        return typing(text if task["good"] else "wrong") if step == 0 else None

    tasks = [{**wrote(f"text{i}"), "id": f"t{i}", "good": i % 2 == 0} for i in range(6)]
    results: list[Result] = [r async for r in client.run(tasks, policy, concurrency=3)]
    assert {r.task_id: r.reward for r in results} == {f"t{i}": float(i % 2 == 0) for i in range(6)}, [
        r.failure for r in results
    ]
    assert all(r.valid_for_training and len(r.steps) == 1 for r in results)


async def test_steps_of_many_desktops_in_one_request(client: AsyncClient) -> None:
    """One request steps two desktops; one bad action is one episode's own."""
    one, two = client.episode(), client.episode()
    async with one, two:
        got = dict([x async for x in client.step_many([(one, "right_single(900,400)"), (two, "nonsense")])])
        assert getattr(got[one], "step", None) == 1
        assert isinstance(got[two], InvalidAction)


async def test_a_lost_replica_is_a_typed_failure_and_is_replaced(
    client: AsyncClient, host: HostProcess
) -> None:
    """Its PID 1 is killed: the episode says so, its neighbour does not notice, the pool fills again."""
    async with client.episode(wrote("x")) as doomed, client.episode() as neighbour:
        [pid] = [r["pid"] for r in host.replicas() if r["replica_id"] == doomed.replica_id]
        os.kill(pid, signal.SIGKILL)
        with pytest.raises(EpisodeLost) as caught:
            async with asyncio.timeout(20):
                while True:
                    await doomed.step("move(5,5)")
        assert caught.value.cause == "killed", caught.value.details
        evaluation = await doomed.evaluate()
        assert evaluation.reward is None and not evaluation.valid_for_training
        assert evaluation.error_class is not None and evaluation.error_class.value == "infra"
        assert (await neighbour.step("move(5,5)")).step == 1
    host.wait_ready(2)


async def test_a_batch_survives_a_lost_replica(client: AsyncClient, host: HostProcess) -> None:
    """With retries the trainer gets a reward all the same, from a fresh replica."""
    killed: list[str] = []

    async def policy(obs: Any, task: Any, step: int) -> Any:
        if not killed:
            replica = obs.episode.replica_id
            [pid] = [r["pid"] for r in host.replicas() if r["replica_id"] == replica]
            killed.append(replica)
            os.kill(pid, signal.SIGKILL)
        return typing("x") if step == 0 else None

    [result] = [r async for r in client.run([wrote("x")], policy, retries=1)]
    assert (result.reward, result.attempts) == (1.0, 2)
    assert result.trajectory.replica_id != killed[0]


def test_a_client_that_dies_frees_its_replica(host: HostProcess) -> None:
    """kill -9 of the client: the lease runs out and the replica is given up."""
    code = (
        "import time; from osgym_sdk import Client\n"
        f"e = Client({host.url!r}).episode(lease_ttl_s=2); e.start(); print(e.replica_id, flush=True)\n"
        "time.sleep(600)\n"
    )
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    replica = process.stdout.readline().strip()
    assert [r["state"] for r in host.replicas() if r["replica_id"] == replica] == ["leased"]
    process.send_signal(signal.SIGKILL)
    process.wait(10)
    process.stdout.close()
    wait_until(lambda: replica not in [r["replica_id"] for r in host.replicas()], 15, "the replica given up")


async def test_a_lease_outlives_its_ttl_while_the_client_lives(client: AsyncClient) -> None:
    """Renewal in the background keeps an idle episode."""
    async with client.episode(lease_ttl_s=1.0) as episode:
        await asyncio.sleep(3.5)
        assert (await episode.step("move(9,9)")).step == 1


def test_the_sync_client_on_a_real_desktop(host: HostProcess) -> None:
    """The example of the README: lease, step, save the picture."""
    with Client(host.url) as client, client.episode(wrote("sync")) as episode:
        obs = episode.step(typing("sync"))
        assert obs.final().image.size == (1920, 1080)
        assert episode.evaluate().reward == 1.0
    wait_until(lambda: not host.replicas("leased"), 10, "the lease given back")


def test_ps_and_shot(host: HostProcess, tmp_path: Any) -> None:
    """The commands show what runs, and a picture of it."""
    host.wait_ready(1)
    replica = host.replicas("ready")[0]["replica_id"]
    listed = osgym("replica", "ls", "--host", host.url)
    assert listed.returncode == 0 and replica in listed.stdout
    out = tmp_path / "shot.png"
    shot = osgym("replica", "screenshot", replica, str(out), "--host", host.url)
    assert shot.returncode == 0, shot.stderr
    assert out.read_bytes()[:4] == b"\x89PNG"
