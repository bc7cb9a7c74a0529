"""Two images on one host, one of them pulled: real desktops of both, from one agent."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.host_process import HostProcess, osgym, running_host, wait_until

from osgym_host.images.content_store import close_folder, open_folder
from osgym_host.images.idmap import IdMap
from osgym_host.images.namespaces import NamespaceSpec, call
from osgym_host.images.store import Image, ImageStore
from osgym_sdk import AsyncClient, Unsupported

pytestmark = pytest.mark.desktop

MARK = "/etc/osgym-which"


@pytest.fixture(scope="module")
def data_dir(small_image: Image, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The data directory of another host, empty until it pulls `small`; it also has a variant, `other`."""
    folder = tmp_path_factory.mktemp("images")
    data, layout = folder / "data", folder / "layout"
    pushed = osgym("image", "push", small_image.digest, str(layout), "--json", timeout_s=300)
    assert pushed.returncode == 0, pushed.stderr
    pulled = osgym("image", "pull", "small", str(layout), "--json", timeout_s=300, OSGYM_DATA_DIR=str(data))
    assert pulled.returncode == 0, pulled.stderr
    assert json.loads(pulled.stdout)["digest"] == small_image.digest
    store = ImageStore(data)
    _variant(store, store.resolve("small"))
    yield data
    for image in store.all():
        store.remove(image)
    shutil.rmtree(folder, ignore_errors=True)


def _variant(store: ImageStore, image: Image) -> None:
    """Publish an image that differs in one file; all others are links."""
    idmap = IdMap(image.manifest.uid_base, image.manifest.gid_base)
    with store.workspace() as workspace:
        made = workspace / "made"
        made.mkdir()
        open_folder(made, idmap)
        inside = NamespaceSpec(made, idmap)
        call(inside, ["cp", "-al", f"../../{image.digest}/rootfs", "rootfs"])
        call(inside, ["sh", "-c", f"echo other > rootfs{MARK}"])
        close_folder(made)
        digest = hashlib.sha256(b"other").hexdigest()
        found = store.publish(made, image.manifest.model_copy(update={"digest": digest, "flavor": "other"}))
    store.tag("other", found.digest)


@pytest.fixture
def two(data_dir: Path, tmp_path: Path) -> Iterator[HostProcess]:
    """A host that serves both, with a warm desktop of each."""
    options: dict[str, Any] = {"log_dir": tmp_path, "data_dir": data_dir, "settings": ("images=other",)}
    with running_host(f"two-{os.getpid()}", max_replicas=4, **options) as running:
        yield running


async def which(client: AsyncClient, image: str | None) -> str:
    """Take a step on a desktop of an image, and return which image its files are of."""
    async with client.episode(image=image) as episode:
        observation = await episode.step("wait()")
        assert observation.image.size == (1920, 1080)
        found = await episode.execute(["sh", "-c", f"cat {MARK} 2>/dev/null || echo small"])
        return str(found.stdout).strip()


async def test_desktops_of_both_images_run_beside_each_other(two: HostProcess) -> None:
    """Each episode gets its image, from one warm pool; an unknown one is refused."""
    wait_until(lambda: _ready(two) == {"small": 1, "other": 1}, 30, "a warm desktop of each")
    async with AsyncClient(two.url) as client:
        names = ["small", "other", None, "other"]
        found = await asyncio.gather(*(which(client, name) for name in names))
        assert found == ["small", "other", "small", "other"]
        with pytest.raises(Unsupported) as refused:
            await which(client, "windows")
        assert refused.value.code == "unknown_image"
        for _ in range(3):
            assert await which(client, "other") == "other"


def _ready(host: HostProcess) -> Counter[str]:
    return Counter({image["flavor"]: image["ready"] for image in host.get("/v1/host")["images"]})
