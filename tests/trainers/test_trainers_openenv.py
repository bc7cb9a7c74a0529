"""OpenEnv's client plays through OpenEnv's server on real desktops."""

from __future__ import annotations

import contextlib
import json
import runpy
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.host_process import HostProcess
from tests.support.trainer_rig import NOTE, TASK, kill_leased

pytest.importorskip("openenv", reason="missing: openenv")

import uvicorn
from openenv.core import GenericEnvClient

from osgym_sdk.integrations.openenv import app

pytestmark = [pytest.mark.desktop, pytest.mark.timeout(300)]

play = runpy.run_path(str(Path(__file__).parents[2] / "examples/trainers/openenv_server.py"))["play"]


@contextlib.contextmanager
def serving(application: Any) -> Iterator[str]:
    """The server on a free port, in a thread."""
    server = uvicorn.Server(uvicorn.Config(application, host="127.0.0.1", port=0, log_level="warning"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    end = time.monotonic() + 20
    while not server.started and time.monotonic() < end:
        time.sleep(0.02)
    try:
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(20)


def test_a_task_is_played_and_scored(desks: HostProcess, tasks: str) -> None:
    """The example: the screenshot arrives, a refusal is told, the end has the reward."""
    with serving(app(tasks, desks.url, size=(640, 360))) as url:
        steps = play(url, [f"type({NOTE}\n)", "click(9999,9999)", "hotkey(ctrl,s)", "finish()"])
    first, typed, refused, _, last = steps
    assert first.observation["instruction"] == TASK["instruction"]
    assert first.observation["content"][-1]["image_url"]["url"].startswith("data:image/")
    assert not typed.done and typed.reward is None
    assert "Refused" in refused.observation["content"][0]["text"]
    assert (last.done, last.reward) == (True, 1.0)


def test_connections_have_desktops_of_their_own(desks: HostProcess, tasks: str) -> None:
    """Two at a time; one that goes away gives its desktop back."""
    with (
        serving(app(tasks, desks.url, sees="elements")) as url,
        GenericEnvClient(base_url=url).sync() as one,
        GenericEnvClient(base_url=url).sync() as two,
    ):
        states = []
        for env in (one, two):
            env.reset(index=0)
            states.append(env.state())
        assert states[0]["episode_id"] != states[1]["episode_id"]
        assert len(desks.replicas("leased")) == 2
        text = one.step({"action": {"op": "screenshot"}}).observation["content"][0]["text"]
        assert "Mousepad" in text or "note.txt" in text


def test_tasks_of_callers_are_objects_and_never_paths(desks: HostProcess, tasks: str) -> None:
    """A path would be one of the server's machine."""
    with serving(app(None, desks.url)) as url, GenericEnvClient(base_url=url).sync() as env:
        assert env.reset(task=TASK).observation["instruction"] == TASK["instruction"]
        with pytest.raises(Exception, match="an object"):
            env.reset(task="/etc/passwd")


def test_a_lost_desktop_has_no_reward(desks: HostProcess, tasks: str) -> None:
    """It ends, says so, and the next reset has a fresh one."""
    with serving(app(tasks, desks.url)) as url, GenericEnvClient(base_url=url).sync() as env:
        env.reset(index=0)
        kill_leased(desks)
        lost = env.step({"action": "type(x)"})
        assert lost.done and lost.reward is None and not lost.observation["valid"], json.dumps(
            lost.observation
        )
        assert not env.reset(index=0).done
