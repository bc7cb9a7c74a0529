"""Fixtures for all tests, as a ladder: image, running host, client, episode."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from osgym_host.images.errors import ImageError
from osgym_host.images.store import Image, ImageStore, default_data_dir
from osgym_qemu.disks.store import DiskImage, DiskStore
from osgym_qemu.snapshots import Snapshot, SnapshotStore
from osgym_sdk import AsyncClient, AsyncEpisode
from tests.support.browser import chromium_on_path
from tests.support.host_process import HostProcess, osgym, running_host, wait_until

# How long an example takes says something of the machine, not of the code.
settings.register_profile("osgym", deadline=None)
settings.load_profile("osgym")


def pytest_configure() -> None:
    """Lets Ctrl-C reach what the tests start, also where the shell that runs them ignores it.

    A shell starts background jobs with SIGINT ignored, and children inherit that.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True, scope="module")
def _every_client_is_closed() -> Iterator[None]:
    """One that stays open keeps its thread and the handler of SIGTERM, and a later test is blamed."""
    yield
    left = [thread for thread in threading.enumerate() if thread.name == "osgym-sdk"]
    assert not left, "a test of this module left a Client open"


@pytest.fixture
def no_client_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """No host, token or authority of the SDK in the environment."""
    for name in ("OSGYM_TOKEN", "OSGYM_HOSTS", "OSGYM_CA"):
        monkeypatch.delenv(name, raising=False)


def _image(flavor: str, tmp_path_factory: pytest.TempPathFactory) -> Image:
    store = ImageStore(default_data_dir())
    try:
        return store.resolve(flavor)
    except ImageError:
        baked = osgym("image", "build", "--flavor", flavor, timeout_s=1500)
    if baked.returncode != 0:
        pytest.skip(f"missing: golden image {flavor!r}, and baking it failed: {baked.stderr[-500:]}")
    return store.resolve(flavor)


@pytest.fixture(scope="session")
def small_image(tmp_path_factory: pytest.TempPathFactory) -> Image:
    """The small golden image; baked when the store has none."""
    return _image("small", tmp_path_factory)


@pytest.fixture(scope="session")
def small_disk(request: pytest.FixtureRequest) -> DiskImage:
    """The bootable disk `small`; made when the store has none."""
    if shutil.which("qemu-system-x86_64") is None or shutil.which("qemu-img") is None:
        pytest.skip("missing: qemu-system-x86 and qemu-utils")
    store = DiskStore(default_data_dir())
    with contextlib.suppress(ImageError):
        return store.resolve("small")
    request.getfixturevalue("small_image")
    made = osgym("image", "build", "--flavor", "small", "--format", "qcow2", timeout_s=600)
    if made.returncode != 0:
        pytest.skip(f"missing: disk image 'small', and making it failed: {made.stderr[-500:]}")
    return store.resolve("small")


@pytest.fixture(scope="session")
def small_snapshot(small_disk: DiskImage) -> Snapshot:
    """The golden snapshot `small@desktop`; made when the store has none, with its disk if need be."""
    store = SnapshotStore(default_data_dir())
    with contextlib.suppress(ImageError):
        return store.resolve("small@desktop")
    made = osgym("image", "snapshot", "small", timeout_s=900)
    assert made.returncode == 0, made.stderr[-2000:]
    return store.resolve("small@desktop")


@pytest.fixture(scope="session")
def chromium_root() -> Path | None:
    """The full image, whose Chromium is taken where PATH has none."""
    if chromium_on_path() is not None:
        return None
    try:
        return ImageStore(default_data_dir()).resolve("full").rootfs
    except ImageError:
        pytest.skip("missing: Chromium on PATH, or golden image 'full'")


@pytest.fixture(scope="session")
def host(small_image: Image, tmp_path_factory: pytest.TempPathFactory) -> Iterator[HostProcess]:
    """A running host with two warm desktops, shared by all tests that do not break it."""
    instance = f"e2e-{os.getpid()}"
    with running_host(instance, log_dir=tmp_path_factory.mktemp("host")) as running:
        yield running


@pytest.fixture
async def client(host: HostProcess) -> AsyncIterator[AsyncClient]:
    """A client of the shared host; afterwards no episode is open."""
    async with AsyncClient(host.url) as opened:
        yield opened
    wait_until(lambda: not host.replicas("leased"), 10, "all leases given back")


@pytest.fixture
async def episode(client: AsyncClient) -> AsyncIterator[AsyncEpisode]:
    """An episode on a clean desktop."""
    async with client.episode() as opened:
        yield opened
