"""Zooms of agents on a real desktop: the screen's own pixels, without a step."""

from __future__ import annotations

import base64
import io
from typing import Any

import pytest
from PIL import Image
from tests.support.agent_runs import anthropic, anthropic_use, task
from tests.support.host_process import HostProcess
from tests.support.model_api import Asked, ModelApi, serving_models

from osgym_sdk import AsyncClient, AsyncEpisode, Client, EpisodeEnded
from osgym_sdk.agents._zoom import MAX_LOOKS, zoom_size

SHOWN = (1280, 720)
"""What the model sees of a screen of 1920x1080: two thirds."""
ICON = (0, 201, 240, 120)
"""Where the desktop has an icon with a label, in pixels of the screen."""
ICON_SHOWN = [0, 134, 160, 214]
"""The same as left, top, right, bottom of the image that the model sees."""


def _scaled(image: Image.Image, region: tuple[int, int, int, int], size: tuple[int, int]) -> bytes:
    x, y, width, height = region
    part = image.crop((x, y, x + width, y + height))
    return part.resize(size, Image.Resampling.LANCZOS).tobytes()


def _images(asked: Asked) -> list[Image.Image]:
    """Return the images in the newest message of a request."""
    made = []
    for block in asked.body["messages"][-1]["content"]:
        for part in block["content"] if isinstance(block.get("content"), list) else ():
            made.append(Image.open(io.BytesIO(base64.b64decode(part["source"]["data"]))).convert("RGB"))
    return made


async def test_a_zoom_is_cut_from_the_screens_own_pixels(episode: AsyncEpisode) -> None:
    """200x100 pixels at 800x400 are these pixels scaled, not those of a smaller picture."""
    region = (ICON[0], ICON[1], 200, 100)
    whole = (await episode.observe()).image
    before = episode.observation
    cut = await episode.zoom(region, size=(800, 400))
    assert (cut.size, cut.screen) == ((800, 400), whole.size)
    assert cut.image.tobytes() == _scaled(whole, region, (800, 400))
    assert (await episode.zoom(region)).image.tobytes() == _scaled(whole, region, region[2:])
    assert episode.observation is before and not episode.trajectory.steps
    await episode.aclose()
    with pytest.raises(EpisodeEnded):
        await episode.zoom(region)


def test_a_zoom_of_the_blocking_client(host: HostProcess) -> None:
    """It is the same."""
    with Client(host.url) as client, client.episode() as episode:
        whole = episode.observation.image
        assert episode.zoom(ICON).image.tobytes() == _scaled(whole, ICON, ICON[2:])
        assert episode.observation.size == whole.size


async def test_an_agent_answers_a_zoom_without_a_step(client: AsyncClient) -> None:
    """The region is in the model's coordinates; its cut is of the real screen, in its own shape."""
    seen: list[Image.Image] = []

    def say(asked: Asked) -> Any:
        if asked.number == 0:
            return [anthropic_use("t1", "zoom", region=ICON_SHOWN), anthropic_use("t2", "cursor_position")]
        seen.extend(_images(asked))
        return {"content": [{"type": "text", "text": "It says Terminal."}], "stop_reason": "end_turn"}

    with serving_models(ModelApi(say)) as base:
        agent = anthropic(base)
        async with agent, client.episode(observe=agent.observe) as episode:
            assert episode.observation.size == SHOWN
            shrunken = episode.observation.image
            decision = await agent.reset(task("a")).act(episode.observation, task("a"), 0)
            assert not episode.trajectory.steps and episode.observation.size == SHOWN
            whole = (await episode.zoom((0, 0, *episode.observation.screen))).image
    assert decision.actions == [{"op": "done"}]
    [zoomed] = seen
    assert zoomed.size == (960, 480)
    assert zoomed.tobytes() == _scaled(whole, ICON, (960, 480))
    assert zoomed.tobytes() != _scaled(shrunken, (0, 134, 160, 80), (960, 480))
    assert [look["usage"]["requests"] for look in decision.info["looks"]] == [1]


async def test_a_zoom_beside_actions_shows_the_screen_after_them(client: AsyncClient) -> None:
    """The actions are a step; an answer that failed in it is told once, not again with each look."""
    answers: list[Any] = []

    def say(asked: Asked) -> Any:
        answers.append(asked.body["messages"][-1]["content"])
        match asked.number:
            case 0:
                return [
                    anthropic_use("t1", "mouse_move", coordinate=[5, 5]),
                    anthropic_use("t2", "zoom", region=ICON_SHOWN),
                ]
            case 1:
                return [anthropic_use("t3", "zoom", region=[0, 0, 640, 720])]
        return {"content": [{"type": "text", "text": "Done."}], "stop_reason": "end_turn"}

    with serving_models(ModelApi(say)) as base:
        agent = anthropic(base)
        async with agent, client.episode(observe=agent.observe) as episode:
            conversation = agent.reset(task("a"))
            decision = await conversation.act(episode.observation, task("a"), 0)
            obs = await episode.step(decision)
            assert [action["op"] for action in obs.actions] == ["move"]
            assert (await conversation.act(obs, task("a"), 1)).actions == [{"op": "done"}]
            assert len(episode.trajectory.steps) == 1
    sizes = [
        Image.open(io.BytesIO(base64.b64decode(part["source"]["data"]))).size
        for answer in answers[1:]
        for block in answer
        if isinstance(block.get("content"), list)
        for part in block["content"]
    ]
    assert sizes == [(960, 480), (640, 720)]


async def test_a_model_that_only_looks_comes_to_steps(client: AsyncClient) -> None:
    """So that an episode ends by its number of steps."""
    api = ModelApi(lambda asked: [anthropic_use(f"t{asked.number}", "zoom", region=ICON_SHOWN)])
    with serving_models(api) as base:
        agent = anthropic(base)
        async with agent, client.episode(observe=agent.observe) as episode:
            decision = await agent.reset(task("a")).act(episode.observation, task("a"), 0)
    assert decision.actions == [{"op": "screenshot"}]
    assert len(decision.info["looks"]) == MAX_LOOKS and len(api.requests) == MAX_LOOKS + 1


@pytest.mark.parametrize(
    ("region", "size"),
    [
        ((0, 0, 200, 100), (800, 400)),
        ((0, 0, 1920, 1080), (1280, 720)),
        ((5, 5, 600, 300), (1280, 640)),
        ((0, 0, 100, 1000), (72, 720)),
        ((0, 0, 1, 1), (4, 4)),
        ((0, 0, 1920, 1), (1280, 1)),
    ],
)
def test_the_size_of_a_zoom(region: tuple[int, int, int, int], size: tuple[int, int]) -> None:
    """It keeps the shape, fits into the image that the model saw, and enlarges by four at most."""
    assert zoom_size(region, SHOWN) == size
