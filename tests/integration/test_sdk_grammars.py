"""Models' outputs played through the SDK over a real HTTP server: by client, episode, step and batch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from tests.support.fake_v1_host import SCREEN, FakeV1Host, Running, serving
from tests.support.grammar_examples import EXAMPLES

from osgym_sdk import AsyncClient, Client, ConfigError, InvalidAction
from osgym_sdk.grammars import Context, parse

CLICK = {"type": "computer_call", "call_id": "c1", "pending_safety_checks": [],
         "actions": [{"type": "click", "button": "left", "x": 10, "y": 20}]}  # fmt: skip
QWEN = '<tool_call>\n{"name": "computer_use", "arguments": %s}\n</tool_call>'


@pytest.fixture
def running() -> Iterator[Running]:
    """A host with four replicas, whose screens have 64x48 pixels."""
    with serving(FakeV1Host()) as started:
        yield started


async def test_an_episode_in_a_grammar(running: Running) -> None:
    """What the model said arrives as internal actions, and the observation knows the calls to answer."""
    async with AsyncClient(running.url) as client, client.episode(actions="openai") as episode:
        obs = await episode.step([CLICK])
        [seen] = running.host.live()
        assert seen.acted == [{"op": "click", "x": 10, "y": 20, "button": "left"}]
        [answer] = obs.to_openai()
        assert (answer["type"], answer["call_id"]) == ("computer_call_output", "c1")
        assert answer["output"]["image_url"] == obs.data_url


async def test_a_client_a_step_and_auto(running: Running) -> None:
    """The client's grammar is the default; a step may name another; `auto` tells them by their shape."""
    async with AsyncClient(running.url, actions="auto") as client, client.episode() as episode:
        await episode.step(CLICK)
        await episode.step("Action: click(start_box='(500,500)')")
        await episode.step("click(3,4)")
        await episode.step(
            {"action": "left_click", "coordinate": [320, 240]}, grammar="anthropic", coordinates=(640, 480)
        )
        await episode.step("Action: click(start_box='(28,28)')", grammar="uitars/1.0", coordinates="pixel")
        [seen] = running.host.live()
        points = [(action["x"], action["y"]) for action in seen.acted]
        assert points == [(10, 20), (32, 24), (3, 4), (32, 24), (28, 28)]


async def test_what_cannot_be_read_is_this_steps_invalid_action(running: Running) -> None:
    """Nothing is sent, no number is used up, and the details say where and what is allowed."""
    async with AsyncClient(running.url) as client, client.episode(actions="openai") as episode:
        with pytest.raises(InvalidAction, match="must be in the image") as caught:
            await episode.step([CLICK, {"type": "click", "button": "left", "x": 64, "y": 0}])
        assert caught.value.details == {
            "index": 1, "grammar": "openai", "position": "[1].x", "read": "(64, 0)",
            "allowed": "x from 0 to 63, y from 0 to 47",
        }  # fmt: skip
        with pytest.raises(InvalidAction, match="cannot be read"):
            await episode.step(_Broken())
        [seen] = running.host.live()
        assert (seen.acted, seen.seq) == ([], 0)
        await episode.step(CLICK)
        assert seen.seq == 1


class _Broken:
    def model_dump(self, **_: Any) -> Any:
        raise RuntimeError("closed")


def test_wrong_names_are_the_callers_fault() -> None:
    """At once, where they are written."""
    wrong = [{"actions": "gpt"}, {"actions": "openai/9"}, {"actions": "auto/1"}, {"coordinates": "pixel"}]
    for settings in (*wrong, {"actions": "qwen", "coordinates": "percent"}):
        with pytest.raises(ConfigError):
            Client(**settings)
        client = AsyncClient()
        with pytest.raises(ConfigError):
            client.episode(**settings)
        with pytest.raises(ConfigError):
            client.run([], lambda *_: None, **settings)


def test_a_batch_in_a_grammar(running: Running) -> None:
    """A policy returns what its model said, as text or as an object of a provider's SDK."""

    class Said:
        def model_dump(self, **_: Any) -> dict[str, Any]:
            return {
                "role": "assistant",
                "content": QWEN % '{"action": "left_click", "coordinate": [500, 500]}',
            }

    def policy(obs: Any, task: Any, step: int) -> Any:
        return [Said(), "no call", QWEN % '{"action": "wait", "time": 1}', None][step]

    with Client(running.url) as client:
        options: dict[str, Any] = {"on_invalid": "noop", "actions": "qwen"}
        [result] = client.run([{"id": "one"}], policy, **options)
    assert (result.invalid_actions, result.reward) == (1, 1.0)
    asked = [step.requested for step in result.trajectory.steps]
    assert [action["op"] for (action,) in asked] == ["click", "screenshot", "wait"]


async def test_every_documented_example_can_be_stepped(running: Running) -> None:
    """All that fit on the small screen arrive as they are read."""
    played = 0
    async with AsyncClient(running.url) as client, client.episode() as episode:
        for example in EXAMPLES:
            context = Context(SCREEN, example.context.coordinates, example.context.version, SCREEN)
            name = f"{example.grammar}/{context.version}" if context.version else example.grammar
            try:
                parsed = parse(example.output, context, example.grammar)
            except ValueError:
                continue
            obs = await episode.step(example.output, grammar=name, coordinates=context.coordinates)
            assert obs.parsed == parsed
            [seen] = running.host.live()
            assert seen.acted[-len(parsed.for_step()) :] == parsed.for_step()
            played += 1
    assert played > 100
