"""SDK: hosts that serve different images."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.fake_runtime import FakeImage, Served

from osgym_host.runtimes.kind import ImageRef
from osgym_sdk import Client, Unsupported

FULL = "f" * 64


def test_an_episode_goes_to_a_host_that_has_its_image(tmp_path: Path) -> None:
    """By option or task; the error of an image that nobody has names it."""
    full = [ImageRef(FakeImage(FULL), "full")]
    with (
        Served(tmp_path / "a", warm=1) as small,
        Served(tmp_path / "b", more_images=full, warm=2) as both,
        Client([*small.urls, *both.urls]) as client,
    ):
        for _ in range(3):
            with client.episode(image="full") as episode:
                assert episode.host == both.urls[0]
        with pytest.raises(Unsupported, match="windows") as refused:
            client.episode(image="windows", wait_s=5).__enter__()
        assert refused.value.code == "unknown_image"
        states = client.host_states()
        assert [image.flavor for image in states[both.urls[0]].images] == ["small", "full"]
