"""SDK: hosts that serve different images."""

from __future__ import annotations

import contextlib
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.support.fake_runtime import TASK, FakeImage, Served
from tests.support.host_process import wait_until

from osgym_host.runtimes.kind import ImageRef
from osgym_sdk import Client, HostUnreachable, NoCapacity, Unsupported
from osgym_sdk.data import Dataset, DatasetWriter

FULL = "f" * 64
MORE = [ImageRef(FakeImage(FULL), "full")]


def _closed_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _port(url: str) -> int:
    port = httpx.URL(url).port
    assert port is not None
    return port


def _task(**fields: Any) -> dict[str, Any]:
    return {**TASK, **fields}


def test_an_episode_goes_to_a_host_that_has_its_image(tmp_path: Path) -> None:
    """By option, task or snapshot; the error of an image that nobody has names it."""
    with (
        Served(tmp_path / "a", warm=4, max_replicas=8) as small,
        Served(tmp_path / "b", more_images=MORE, warm=2) as both,
        Client([*small.urls, *both.urls]) as client,
    ):
        asked: list[dict[str, Any]] = [
            {"image": "full"},
            {"task": _task(osgym={"image": "full"})},
            {"task": _task(snapshot="full")},
            {"task": _task(snapshot=FULL)},
        ]
        for options in asked * 2:
            with client.episode(**options) as episode:
                assert episode.host == both.urls[0], options
        with client.episode(task=_task(snapshot="chrome")), client.episode(image="small"):
            pass
        with pytest.raises(Unsupported, match="windows") as refused:
            client.episode(image="windows", wait_s=60).__enter__()
        assert refused.value.code == "unknown_image"
        assert "not_reached" not in refused.value.details
        states = client.host_states()
        assert [image.flavor for image in states[both.urls[0]].images] == ["small", "full"]


def test_recorded_episodes_name_their_image(tmp_path: Path) -> None:
    """Digest and flavor of the episode's own image, in a data set and of a fork."""
    with Served(tmp_path / "host", more_images=MORE, warm=2) as both, Client(both.urls[0]) as client:
        with DatasetWriter(tmp_path / "data") as writer:
            for name, image in (("a", "full"), ("b", None)):
                with client.episode(_task(id=name), image=image, record=writer):
                    pass
        found = {
            episode.values["task_id"]: (episode.values["image_digest"], episode.values["image_flavor"])
            for episode in Dataset.open(tmp_path / "data").episodes()
        }
        assert found == {"a": (FULL, "full"), "b": ("0" * 64, "small")}
        with client.episode(image="full") as episode:
            (child,) = episode.fork(1)
            with child:
                assert child.trajectory.image_digest == episode.trajectory.image_digest == FULL


@pytest.mark.parametrize("options", [{"image": "full"}, {"task": _task(snapshot="full")}])
def test_a_full_host_of_the_image_is_waited_for(tmp_path: Path, options: dict[str, Any]) -> None:
    """The caller gets no_capacity after `wait_s`, and neither unknown_image nor another image."""
    with (
        Served(tmp_path / "a", warm=2) as small,
        Served(tmp_path / "b", more_images=MORE, warm=1, max_replicas=1) as both,
        Client([*small.urls, *both.urls]) as client,
        client.episode(image="full") as first,
    ):
        assert first.host == both.urls[0]
        began = time.monotonic()
        with pytest.raises(NoCapacity) as full:
            client.episode(**options, wait_s=2).__enter__()
        assert full.value.code == "no_capacity"
        assert time.monotonic() - began >= 1.9


def test_a_host_that_was_never_reached_is_named(tmp_path: Path) -> None:
    """It may have the image, so it is waited for; then the error says which host could not be asked."""
    absent = f"http://127.0.0.1:{_closed_port()}"
    with Served(tmp_path, warm=1) as small, Client([*small.urls, absent]) as client:
        began = time.monotonic()
        with pytest.raises(Unsupported, match="not reached") as refused:
            client.episode(image="full", wait_s=3).__enter__()
        assert time.monotonic() - began >= 2.9
        assert refused.value.code == "unknown_image"
        assert refused.value.details["not_reached"] == [absent]
        assert f"{absent} (host_unreachable)" in str(refused.value)


def test_a_host_that_answers_for_the_first_time_gets_the_episode(tmp_path: Path) -> None:
    """While the client waits, the host of the image starts."""
    port = _closed_port()
    with Served(tmp_path / "a", warm=1) as small, ThreadPoolExecutor(1) as pool:
        url = f"http://127.0.0.1:{port}"
        with Client([*small.urls, url]) as client:

            def host_of_episode() -> str:
                with client.episode(image="full", wait_s=60) as episode:
                    return episode.host

            found = pool.submit(host_of_episode)
            wait_until(lambda: client.host_states() and not found.done(), 10, "the client waits")
            with Served(tmp_path / "b", more_images=MORE, warm=1, ports=[port]):
                assert found.result(timeout=60) == url


def test_a_snapshot_finds_its_host_among_many(tmp_path: Path) -> None:
    """One of ten hosts has an image of that name; none gives its default one instead."""
    with contextlib.ExitStack() as stack:
        small = [stack.enter_context(Served(tmp_path / str(n), warm=1)).urls[0] for n in range(9)]
        full = stack.enter_context(Served(tmp_path / "b", more_images=MORE, warm=1)).urls[0]
        for _ in range(8):
            with Client([*small, full]) as client, client.episode(task=_task(snapshot="full")) as episode:
                assert episode.host == full


def test_a_host_of_the_image_that_is_down_is_waited_for(tmp_path: Path) -> None:
    """It serves the image again after its restart; meanwhile a snapshot gets no other image."""
    with Served(tmp_path / "a", warm=2) as small:
        with Served(tmp_path / "b", more_images=MORE, warm=1) as both:
            url = both.urls[0]
            client = Client([*small.urls, url])
            with client.episode(image="full") as episode:
                assert episode.host == url
        with client:
            with pytest.raises(Unsupported) as refused:
                client.episode(image="full", wait_s=2).__enter__()
            assert refused.value.details["not_reached"] == [url]
            with pytest.raises(HostUnreachable):
                client.episode(task=_task(snapshot="full"), wait_s=1).__enter__()
            again = Served(tmp_path / "b", more_images=MORE, warm=1, ports=[_port(url)])
            with again, client.episode(image="full", wait_s=60) as episode:
                assert episode.host == url


def test_a_host_of_the_image_that_drains_has_not_refused_it(tmp_path: Path) -> None:
    """The error says that it drains; once it takes episodes again, the wait ends there."""
    with (
        Served(tmp_path / "a", warm=1) as small,
        Served(tmp_path / "b", more_images=MORE, warm=1) as both,
        Client([*small.urls, *both.urls]) as client,
    ):
        url = both.urls[0]
        assert client.host_states()[url].draining is False
        httpx.post(f"{url}/v1/drain", timeout=10).raise_for_status()
        began = time.monotonic()
        with pytest.raises(Unsupported, match="draining") as refused:
            client.episode(image="full", wait_s=2).__enter__()
        assert time.monotonic() - began >= 1.9
        assert refused.value.details["not_reached"] == [url]
        httpx.delete(f"{url}/v1/drain", timeout=10).raise_for_status()
        with client.episode(image="full", wait_s=60) as episode:
            assert episode.host == url


def test_a_host_restarted_without_the_image_refuses_it(tmp_path: Path) -> None:
    """What the client remembers of a host's images does not make it wait."""
    with Served(tmp_path / "a", warm=1) as small:
        with Served(tmp_path / "b", more_images=MORE, warm=1) as both:
            url = both.urls[0]
            client = Client([*small.urls, url])
            with client.episode(image="full"):
                pass
        with client, Served(tmp_path / "c", warm=1, ports=[_port(url)]):
            began = time.monotonic()
            with pytest.raises(Unsupported) as refused:
                client.episode(image="full", wait_s=60).__enter__()
            assert refused.value.code == "unknown_image"
            assert "not_reached" not in refused.value.details
            assert time.monotonic() - began < 20
