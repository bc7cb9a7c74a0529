"""The archive of a golden image as a resource, for real: looked up and packed once; stopped in a bake."""

from __future__ import annotations

import asyncio
import hashlib
import json
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import pytest
from pulumi.provider.experimental import provider as api
from tests.integration.test_image_bake import OSGYM
from tests.support.host_process import wait_until

from osgym_host.images.content_store import remove_tree
from osgym_host.images.store import Image, default_data_dir
from osgym_infra.archives.make import IMAGE
from osgym_infra.fleet.bootstrap import bootstrap_files
from osgym_infra.links.errors import Interrupted
from osgym_infra.resources.provider import OsgymProvider
from osgym_infra.resources.values import plain_all, wrapped

pytestmark = [pytest.mark.desktop, pytest.mark.timeout(300)]

URN = f"urn:pulumi:t::osgym::osgym:index:GoldenImage${IMAGE}::fleet-image"


class Calls:
    """Calls the provider as the engine does, for the archive of the small image in a folder."""

    def __init__(self, folder: Path) -> None:
        self.lines: list[str] = []
        self.provider = OsgymProvider(bootstrap_files(), self._say)
        self.given: dict[str, Any] = {"folder": str(folder), "flavor": "small", "machines": False}
        self.state: dict[str, Any] = {}

    async def _say(self, urn: str, line: str) -> None:
        assert urn == URN
        self.lines.append(line)

    async def checked(self) -> dict[str, Any]:
        """The inputs with the definition's digest."""
        raw = {name: wrapped(value) for name, value in self.given.items()}
        answer = await self.provider.check(api.CheckRequest(URN, {}, raw, b""))
        assert not answer.failures, [(f.property, f.reason) for f in answer.failures]
        assert answer.inputs is not None
        return answer.inputs

    async def create(self) -> dict[str, Any]:
        """The outputs."""
        answer = await self.provider.create(api.CreateRequest(URN, await self.checked(), 0, False))
        self.state = answer.properties
        return plain_all(self.state)

    async def changes(self) -> list[str]:
        """What differs from the state."""
        request = api.DiffRequest(URN, "image-small", self.state, await self.checked(), [])
        return list((await self.provider.diff(request)).diffs or [])

    async def delete(self) -> None:
        """Removes the archive."""
        await self.provider.delete(api.DeleteRequest(URN, "image-small", self.state, 0))


def test_an_image_of_the_store_is_packed_once(small_image: Image, tmp_path: Path) -> None:
    """No bake; named by content; nothing to do afterwards; the same again when it was lost; no image lost."""
    done = subprocess.run(
        [*OSGYM, "build", "--flavor", "small", "--dry-run"], capture_output=True, text=True, timeout=60
    )
    if json.loads(done.stdout)["image"] != small_image.digest:
        pytest.skip("missing: golden image 'small' of the definition in this tree")
    calls = Calls(tmp_path)
    made = asyncio.run(calls.create())
    assert any("nothing changed: the image already exists" in line for line in calls.lines)
    assert "packing the image small" in calls.lines
    path = Path(made["archive"])
    assert (made["digest"], made["size"]) == (small_image.digest, path.stat().st_size)
    with path.open("rb") as file:
        assert hashlib.file_digest(file, "sha256").hexdigest() == made["sha256"]
    assert path == tmp_path / f"small-{made['sha256'][:16]}.tar"
    assert list(tmp_path.iterdir()) == [path]
    assert asyncio.run(calls.changes()) == []

    path.unlink()
    assert asyncio.run(calls.changes()) == ["archive"]
    assert asyncio.run(calls.create()) == made
    asyncio.run(calls.delete())
    assert list(tmp_path.iterdir()) == []
    assert (small_image.rootfs / "etc/passwd").exists()


def test_an_interrupted_bake_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing in the store, no archive, and nothing that runs on."""
    default_data_dir().mkdir(parents=True, exist_ok=True)
    private = Path(tempfile.mkdtemp(prefix="test-", dir=default_data_dir()))
    private.chmod(0o755)
    monkeypatch.setenv("OSGYM_DATA_DIR", str(private))
    try:
        asyncio.run(_interrupted(Calls(tmp_path), private))
        assert {path.name for path in (private / "images").iterdir()} == {".locks", "tags"}
        assert list(tmp_path.iterdir()) == []
        assert str(private) not in _commands()
    finally:
        remove_tree(private)


async def _interrupted(calls: Calls, private: Path) -> None:
    """In the middle of the first step."""
    creating = asyncio.create_task(calls.create())

    def begun() -> bool:
        return creating.done() or any(private.glob("images/.baking-*/mmdebstrap.*/etc"))

    await asyncio.to_thread(wait_until, begun, 60, "mmdebstrap fills its tree")
    assert not creating.done(), creating.exception()
    await calls.provider.cancel()
    with pytest.raises(Interrupted, match="step bake: interrupted; everything partial was removed"):
        await creating


def _commands() -> str:
    """Command lines of all processes."""
    argv = ["ps", "-eo", "args"]
    return subprocess.run(argv, capture_output=True, text=True, timeout=10, check=True).stdout
