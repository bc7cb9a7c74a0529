"""What trainers share, over a host with synthetic replicas: losses are data, mistakes are told."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.fake_v1_host import FakeV1Host, Running, serving

from osgym_sdk import ConfigError, EpisodeEnded
from osgym_sdk._environment import EnvironmentOptions
from osgym_sdk.integrations import _desktop, _rollouts
from osgym_sdk.integrations._desktop import Desktop, shared_client

TASK: dict[str, Any] = {"id": "look", "instruction": "Look.", "evaluator": {"func": "infeasible"}}


@pytest.fixture
def running() -> Iterator[Running]:
    """A host with four replicas."""
    with serving(FakeV1Host()) as served:
        yield served
    for client in list(_desktop._CLIENTS.values()):
        client.close()
    _desktop._CLIENTS.clear()


def test_a_rollout_acts_ends_and_is_scored(running: Running) -> None:
    """Refusals and ends are said in words, which the picture cannot show."""
    desk = Desktop(running.url)
    with pytest.raises(EpisodeEnded):
        desk.act("click(1,1)")
    desk.begin(json.dumps(TASK))
    assert desk.act("click(10,20)") == "Done." and desk.reward is None
    assert desk.steps == 1 and not desk.ended
    assert "ended" in desk.act("finish()")
    assert desk.ended and desk.failure is None and desk.finish() == desk.reward is not None
    assert not running.host.live()


def test_a_refusal_does_nothing_and_is_told(running: Running) -> None:
    """The model may try again."""
    desk = Desktop(running.url, actions="osgym")
    desk.begin(TASK)
    assert desk.act("click(99999,1)").startswith("The action was refused and nothing was done")
    assert not desk.ended and desk.steps == 1
    desk.close()


def test_one_that_just_stops_is_scored_as_it_stands(running: Running) -> None:
    """And a closed one is not."""
    desk = Desktop(running.url, max_steps=5)
    desk.begin(TASK)
    assert desk.finish() is not None and desk.finish() == desk.reward
    desk.begin(TASK)
    desk.close()
    assert desk.ended and desk.finish() is None and not running.host.live()


def test_a_lost_rollout_has_a_failure_and_no_reward(running: Running) -> None:
    """Nothing is raised: one exception would end all rollouts of a batch."""
    desk = Desktop(running.url)
    desk.begin(TASK)
    running.host.lose(running.host.live()[0], "replica_died")
    assert "lost" in desk.act("click(1,1)")
    assert desk.ended and desk.reward is None and desk.failure is not None
    assert desk.finish() is None
    desk.begin(TASK)
    assert not desk.ended and desk.failure is None
    desk.close()


def test_no_desktop_is_a_failure_too() -> None:
    """A host that is not there."""
    desk = Desktop("http://127.0.0.1:9", wait_s=0.5)
    desk.begin(TASK)
    assert desk.ended and desk.failure is not None and desk.finish() is None
    shared_client("http://127.0.0.1:9").close()
    _desktop._CLIENTS.clear()


def test_other_event_loops_and_threads_share_one_client(running: Running) -> None:
    """Frameworks have loops of their own; rollouts in them do not wait for each other."""
    seen: list[float | None] = []

    async def play() -> None:
        desk = Desktop(running.url)
        await desk.begin_async(TASK)
        [part] = await desk.shown_async("image")
        assert part["image_url"]["url"].startswith("data:image/")
        await desk.act_async("click(1,1)")
        seen.append(await desk.finish_async())
        await desk.aclose()

    async def several() -> None:
        await asyncio.gather(play(), play())

    threads = [threading.Thread(target=asyncio.run, args=(several(),)) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert len(seen) == 4 and None not in seen and len(_desktop._CLIENTS) == 1
    assert shared_client(running.url) is shared_client(running.url)
    shared_client(running.url).close()
    assert shared_client(running.url).hosts


def test_tasks_and_options_that_are_wrong() -> None:
    """Each error names the field."""
    for given, word in (("{wrong", "not JSON"), ("/nowhere.json", "nowhere"), (3, "int")):
        with pytest.raises(ConfigError, match=word):
            _rollouts.task_of(given)
    with pytest.raises(ConfigError, match="max_step'"):
        EnvironmentOptions.read({"max_step": 1})
    with pytest.raises(ConfigError, match="dreams"):
        _rollouts.text_options("dreams")
    with pytest.raises(ConfigError, match="list is empty"):
        _rollouts.rows([])
    [(task, text)] = _rollouts.rows([TASK])
    assert json.loads(text) == task == TASK and _rollouts.instruction_of(task) == "Look."


def test_points_are_pixels_of_the_image_that_is_shown() -> None:
    """But not of elements, whose places are the screen's, nor of grammars that have their own."""
    assert _rollouts.text_options("image", size=(640, 360))["coordinates"] == (640, 360)
    assert _rollouts.text_options("elements", size=(640, 360))["coordinates"] is None
    assert _rollouts.text_options("image", "auto", size=(640, 360))["coordinates"] is None


def test_a_missing_framework_is_told_with_its_extra() -> None:
    """Importing the package itself needs none."""
    code = """
import importlib, importlib.util as util, sys
frameworks = {name: name for name in ("trl", "verl", "verifiers", "openenv")}
frameworks |= {"skyrl": "skyrl_gym", "inspect": "inspect_ai"}
find_spec = util.find_spec
util.find_spec = lambda name, *more: None if name in frameworks.values() else find_spec(name, *more)
from osgym_sdk import ConfigError, integrations
for name, framework in frameworks.items():
    try:
        importlib.import_module(f"osgym_sdk.integrations.{name}")
    except ConfigError as exc:
        assert str(exc) == f"{framework} is not installed: pip install 'osgym-sdk[{name}]'", exc
    else:
        raise AssertionError(name)
print("all told")
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.stdout == "all told\n", done.stderr


def test_the_framework_tests_are_in_no_default_run() -> None:
    """They have a target of their own, and an extra each."""
    root = Path(__file__).parents[2]
    names = {path.stem.removeprefix("test_trainers_") for path in (root / "tests/trainers").glob("test_*.py")}
    script = (root / "scripts/test_trainers.sh").read_text()
    assert all(name in script for name in names)
    assert "tests/trainers" not in (root / "scripts/test.sh").read_text()
    assert '"tests"]' not in (root / "pyproject.toml").read_text()
