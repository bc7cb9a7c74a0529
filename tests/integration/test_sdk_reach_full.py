"""Reach into a desktop of the full image: a video of it, and a browser by its debugging port."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import secrets
import struct
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import httpx
import pytest
from tests.support.data_episodes import play
from tests.support.host_process import HostProcess, running_host

from osgym_host.images.errors import ImageError
from osgym_host.images.store import ImageStore, default_data_dir
from osgym_sdk import AsyncClient, AsyncEpisode
from osgym_sdk.data import Dataset, DatasetWriter, episode_page

pytestmark = [pytest.mark.desktop, pytest.mark.full_image, pytest.mark.timeout(240)]

CDP_PORT = 9222


@pytest.fixture(scope="module")
def full_host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HostProcess]:
    """A host with one desktop of the full image."""
    try:
        ImageStore(default_data_dir()).resolve("full")
    except ImageError:
        pytest.skip("missing: golden image 'full'")
    folder = tmp_path_factory.mktemp("full")
    with running_host(
        f"reach-{os.getpid()}", image="full", warm=1, max_replicas=2, log_dir=folder
    ) as running:
        yield running


@pytest.fixture
async def full_episode(full_host: HostProcess) -> AsyncIterator[AsyncEpisode]:
    """An episode on it."""
    async with AsyncClient(full_host.url) as client, client.episode() as opened:
        yield opened


async def test_a_video_shows_what_happened(full_episode: AsyncEpisode, tmp_path: Path) -> None:
    """An MP4 with frames of the screen's size; one at a time, and it ends by itself at its bounds."""
    async with full_episode.record(max_s=30, frames_per_s=5) as video:
        await full_episode.step([{"op": "move", "x": 300, "y": 300}, {"op": "wait", "duration_ms": 1500}])
    assert video.data[4:8] == b"ftyp" and b"moov" in video.data
    await full_episode.write_file("/tmp/seen.mp4", video.data)
    asked = (
        "-v error -select_streams v -count_frames -show_entries stream=width,height,nb_read_frames -of json"
    )
    probe = await full_episode.execute(f"ffprobe {asked} /tmp/seen.mp4", timeout_s=60)
    stream = json.loads(probe.stdout)["streams"][0]
    assert (stream["width"], stream["height"]) == (1920, 1080) and int(stream["nb_read_frames"]) >= 3
    async with full_episode.record(max_s=1, max_bytes=65536, frames_per_s=5) as short:
        await full_episode.step({"op": "wait", "duration_ms": 2500})
    assert short.data[4:8] == b"ftyp"
    short.save(tmp_path / "short.mp4")
    assert [event.kind for event in full_episode.trajectory.reaches].count("record") == 4


async def test_a_browser_is_driven_by_its_debugging_port(full_episode: AsyncEpisode) -> None:
    """CDP through an exposed port: its JSON by HTTP, its commands by a WebSocket."""
    flags = f"--remote-debugging-port={CDP_PORT} --user-data-dir=/tmp/profile --no-first-run"
    await full_episode.execute(f"chromium {flags} 'data:text/html,<title>reached</title>' >/dev/null 2>&1 &")
    where = await full_episode.expose(CDP_PORT)
    async with asyncio.timeout(120), httpx.AsyncClient() as http:
        while True:
            try:
                pages = (await http.get(f"{where.url}/json")).json()
            except httpx.HTTPError:
                pages = []
            if found := [page for page in pages if page.get("title") == "reached"]:
                break
            await asyncio.sleep(0.2)
    path = "/" + found[0]["webSocketDebuggerUrl"].split("/", 3)[3]
    reader, writer = await asyncio.open_connection(where.host, where.port)
    key = base64.b64encode(secrets.token_bytes(16)).decode()
    head = f"GET {path} HTTP/1.1\r\nHost: {where.host}:{where.port}\r\nUpgrade: websocket\r\n"
    head += f"Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {key}\r\n\r\n"
    async with asyncio.timeout(60):
        writer.write(head.encode())
        assert b" 101 " in await reader.readuntil(b"\r\n\r\n")
        asked = {"id": 1, "method": "Runtime.evaluate", "params": {"expression": "6 * 7"}}
        data = json.dumps(asked).encode()
        writer.write(b"\x81" + bytes([0x80 | len(data)]) + b"\0\0\0\0" + data)
        first = await reader.readexactly(2)
        size = first[1] if first[1] < 126 else struct.unpack(">H", await reader.readexactly(2))[0]
        answer = json.loads(await reader.readexactly(size))
    assert answer["result"]["result"]["value"] == 42
    writer.close()


async def test_a_replay_opens_in_a_browser_and_is_gone_through_by_keys(
    full_episode: AsyncEpisode, tmp_path: Path
) -> None:
    """From a file, with nothing to ask: its own script runs, what a model wrote does not."""
    with DatasetWriter(tmp_path / "set") as writer:
        hostile = (
            "</script><script>document.title = 'taken'</script><img src=x onerror=document.title='taken'>"
        )
        play(writer, {"id": f"replayed {hostile}"}, 3, reward=1.0, infos=[{"text": hostile}] * 3)
    page = episode_page(next(Dataset.open(tmp_path / "set").episodes()))
    await full_episode.write_file("/home/user/replay.html", page.encode())
    await full_episode.execute("chromium --no-first-run file:///home/user/replay.html >/dev/null 2>&1 &")

    async def title() -> str:
        found = [window.title for window in await full_episode.windows() if "replayed" in window.title]
        return found[0] if found else ""

    keys = {"right": "step 2 of 3", "end": "the end", "home": "step 1 of 3"}
    for key, shown in {"": "step 1 of 3", **keys}.items():
        if key:
            await full_episode.step([{"op": "key", "keys": [key]}])
        async with asyncio.timeout(60):
            while shown not in await title():  # noqa: ASYNC110 - a window's title tells nobody of its change
                await asyncio.sleep(0.2)
