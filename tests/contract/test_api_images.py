"""Host API v1: several golden images on one host."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.api_answers import error
from tests.support.fake_runtime import TASK, FakeImage, Service, running_service
from tests.support.waiting import until

from osgym_host.runtimes.kind import ImageRef
from osgym_protocol.host_api import LEASE_HEADER

SMALL, FULL = "0" * 64, "f" * 64


@pytest.fixture
async def two(tmp_path: Path) -> AsyncIterator[Service]:
    """A host of the images `small`, the default, and `full`, with two warm replicas."""
    images = [ImageRef(FakeImage(FULL), "full")]
    async with running_service(tmp_path, more_images=images, warm=2, max_replicas=4) as service:
        yield service


def image_of(service: Service, episode: dict[str, Any]) -> str:
    """The digest of the image that an episode's replica was cloned from."""
    return service.guest_of(episode).spec.image.digest


async def end(service: Service, episode: dict[str, Any]) -> None:
    """Give an episode's replica back."""
    path, lease = f"/v1/episodes/{episode['episode_id']}", {LEASE_HEADER: episode["lease"]}
    assert (await service.http.delete(path, headers=lease)).is_success


@pytest.mark.parametrize(
    ("asked", "task", "expected"),
    [
        (None, {}, SMALL),
        ("full", {}, FULL),
        (FULL, {}, FULL),
        ("small", {"osgym": {"image": "full"}}, SMALL),
        (None, {"osgym": {"image": "full"}}, FULL),
        (None, {"snapshot": "full"}, FULL),
        (None, {"snapshot": "libreoffice_calc"}, SMALL),
        (None, {"snapshot": "full", "osgym": {"image": "small"}}, SMALL),
    ],
)
async def test_client_task_and_snapshot_choose_the_image(
    two: Service, asked: str | None, task: dict[str, Any], expected: str
) -> None:
    """The client's choice wins, then the task's; a snapshot counts where an image has its name."""
    episode = await two.create(task={**TASK, **task}, **({"image": asked} if asked else {}))
    assert image_of(two, episode) == expected


@pytest.mark.parametrize("body", [{"image": "windows"}, {"task": {**TASK, "osgym": {"image": "windows"}}}])
async def test_an_image_that_is_not_served_is_refused(two: Service, body: dict[str, Any]) -> None:
    """With all that are served, and without a replica taken."""
    refused = await two.http.post("/v1/episodes", json={"request_id": "other", **body})
    assert error(refused) == (404, "unknown_image")
    assert [image["flavor"] for image in refused.json()["details"]["images"]] == ["small", "full"]
    assert two.agent.pool.view().leased == 0


async def test_each_image_has_warm_replicas_and_demand_moves_them(tmp_path: Path) -> None:
    """One of each at least; an image that is asked for gets more."""

    def ready() -> Counter[str]:
        return Counter({image: view.ready for image, view in service.agent.pool.views().items()})

    images = [ImageRef(FakeImage(FULL), "full")]
    async with running_service(tmp_path, more_images=images, warm=6, max_replicas=20) as service:
        await until(lambda: ready() == {SMALL: 3, FULL: 3})
        for _ in range(12):
            episode = await service.create(image="full", wait_s=10)
            await end(service, episode)
        await until(lambda: ready() == {SMALL: 1, FULL: 5})


async def test_state_rows_and_metrics_name_the_image(two: Service) -> None:
    """What is leased, ready and wanted of each, for people and for Prometheus."""
    await until(lambda: all(view.ready == 1 for view in two.agent.pool.views().values()))
    episode = await two.create(image="full")
    rows = (await two.http.get("/v1/replicas")).json()
    leased = [row["image"] for row in rows if row["episode_id"] == episode["episode_id"]]
    assert leased == ["full"] and {row["image"] for row in rows} == {"small", "full"}
    text = (await two.http.get("/metrics")).text
    names = f'digest="{FULL[:16]}",image="full"'
    assert f'osgym_image_replicas{{{names},state="leased"}} 1.0' in text
    assert f"osgym_image_waiting_clients{{{names}}} 0.0" in text
    assert f"osgym_image_warm_target{{{names}}}" in text


async def test_idle_replicas_of_another_image_give_way(two: Service) -> None:
    """Four replicas at most: the fourth lease of an image takes the place of an idle one of the other."""
    episodes = await asyncio.gather(*(two.create(image="full", wait_s=20) for _ in range(4)))
    assert {image_of(two, episode) for episode in episodes} == {FULL}
    last = asyncio.create_task(two.create(wait_s=20))
    await until(lambda: two.agent.pool.view().waiting == 1)
    await end(two, episodes[0])
    assert image_of(two, await last) == SMALL


async def test_children_keep_the_image_of_their_parent(two: Service) -> None:
    """Forks and checkpoints of an image that is not the default one."""
    episode = await two.create(image="full")
    path = f"/v1/episodes/{episode['episode_id']}"
    forked = await two.http.post(
        f"{path}/fork", json={"request_id": "f", "lease": episode["lease"], "count": 2, "wait_s": 10}
    )
    assert {image_of(two, child) for child in forked.json()["children"]} == {FULL}
    taken = await two.http.post(f"{path}/checkpoint", json={"request_id": "c", "lease": episode["lease"]})
    checkpoint = taken.json()["checkpoint_id"]
    assert image_of(two, await two.create(checkpoint=checkpoint, wait_s=10)) == FULL
    other = {"request_id": "o", "checkpoint": checkpoint, "image": "small"}
    assert error(await two.http.post("/v1/episodes", json=other)) == (422, "bad_request")


async def test_a_template_is_of_one_image(tmp_path: Path) -> None:
    """The same task on another image is set up anew."""
    images = [ImageRef(FakeImage(FULL), "full")]
    async with running_service(tmp_path, more_images=images, task_templates="on") as service:
        told = []
        for image in ("small", "small", "full", "full"):
            episode = await service.create(task=TASK, image=image, wait_s=10)
            told.append(episode["template"])
            assert image_of(service, episode) == {"small": SMALL, "full": FULL}[image]
        assert told == ["made", "hit", "made", "hit"]
