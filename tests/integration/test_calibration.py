"""An application of the small image is found, explored and recorded in real replicas."""

from __future__ import annotations

from pathlib import Path

import pytest

from osgym_host.calibration.decision import Bounds, calibrate
from osgym_host.calibration.run import Explorer, Plan
from osgym_host.images.errors import ImageNotFound
from osgym_host.images.store import Image, ImageStore, default_data_dir
from osgym_host.runtimes.local.runtime import LocalRuntime

ROUND_MINUTES = 0.3


@pytest.fixture
def image() -> Image:
    """The small golden image."""
    try:
        return ImageStore(default_data_dir()).resolve("small")
    except ImageNotFound:
        pytest.skip("missing: the golden image small (osgym image build --flavor small)")


def _left(data_dir: Path) -> list[Path]:
    """Folders of replicas that are still there."""
    return list(data_dir.glob("run/explore/replicas/*"))


async def test_an_application_is_explored_by_itself(image: Image, tmp_path: Path) -> None:
    """Found in the menu, started, used; its program has rows, and nothing is left of the replicas."""
    runtime = LocalRuntime(tmp_path, "explore")
    said: list[str] = []
    await runtime.start()
    try:
        plan = Plan(("galculator",), minutes=ROUND_MINUTES)
        found = await Explorer(runtime, image, plan, said.append).run()
    finally:
        await runtime.stop()
    assert found.explored == ["galculator"], found.failures
    assert found.rule is not None
    assert found.samples and all(sample.trace.turns for sample in found.samples)
    rows = calibrate(found.samples, found.rule, Bounds())
    assert {row.program for row in rows} == {"galculator"}
    assert any("galculator" in line for line in said)
    assert not _left(tmp_path)
