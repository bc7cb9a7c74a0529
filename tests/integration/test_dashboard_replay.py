"""The dashboard's replay of what a real desktop recorded, in a real browser, and the file it downloads."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.browser import Page, browser_page
from tests.support.host_process import HostProcess, running_host
from tests.support.waiting import until

from osgym_host.images.store import Image
from osgym_sdk import AsyncClient, Decision

pytestmark = [pytest.mark.desktop, pytest.mark.timeout(300)]

HOSTILE = "I open the menu.\u202e</script><img src=x onerror=document.title='owned'>"
STEPS: list[tuple[Any, dict[str, Any]]] = [
    (Decision("click(760,500)", note="First the text."), {}),
    (Decision("type(Buy milk, eggs and bread.)", note=HOSTILE), {}),
    # Answered before the dialog can be there: a frame that is not final.
    ([{"op": "key", "keys": ["ctrl", "s"]}], {"settle": {"policy": "fixed", "pause_ms": 0}}),
    ([{"op": "key", "keys": ["ctrl", "a"]}, {"op": "type", "text": "/home/user/Documents/shopping.txt"}], {}),
    ([{"op": "key", "keys": ["enter"]}], {}),
]


@pytest.fixture(scope="module", params=["frames", "steps"])
def recording(
    request: pytest.FixtureRequest, small_image: Image, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[HostProcess, bool]]:
    """A host agent that records, with frames and without."""
    setting = f"trajectory={request.param}"
    folder = tmp_path_factory.mktemp("host")
    with running_host(
        f"replay-{os.getpid()}-{request.param}", warm=1, max_replicas=2, log_dir=folder, settings=(setting,)
    ) as running:
        yield running, request.param == "frames"


@pytest.fixture
async def page(
    recording: tuple[HostProcess, bool], chromium_root: Path | None, tmp_path: Path
) -> AsyncIterator[Page]:
    """The dashboard of that host; what it downloads lies in the browser's folder."""
    folder = tmp_path / "browser"
    folder.mkdir()
    async with browser_page(f"{recording[0].url}/ui", folder, chromium_root) as opened:
        await opened.size(1440, 900)
        place = str(folder) if chromium_root is None else "/mnt"
        await opened.call("Page.setDownloadBehavior", behavior="allow", downloadPath=place)
        yield opened
        assert opened.problems == []


async def played(host: HostProcess) -> str:
    """The name of an episode whose note was written and saved."""
    async with AsyncClient(host.url) as client, client.episode("tasks/mousepad/write-note.json") as episode:
        for actions, options in STEPS:
            obs = await episode.step(actions, **options)
            if options:
                async with asyncio.timeout(20):
                    while (await episode.observe()).meta.frame.hash == obs.meta.frame.hash:  # noqa: ASYNC110
                        await asyncio.sleep(0.05)
        assert (await episode.evaluate()).reward == 1.0
    return episode.episode_id


async def test_an_episode_is_scrubbed_compared_and_downloaded(
    page: Page, recording: tuple[HostProcess, bool], chromium_root: Path | None, tmp_path: Path
) -> None:
    """Every step with what the model said; what `osgym data replay` makes of it opens without the host."""
    host, kept = recording
    episode_id = await played(host)
    await page.run(f"location.hash = '#/episode/{episode_id}?step=1'")
    await page.until("document.querySelector('output')?.textContent === 'step 1 of 5'")
    told = "document.querySelector('.told')?.innerText"
    await page.until(f"{told}.includes('First the text.') && {told}.includes('click x=760 y=500')")
    assert re.search(r"(exact|fast|certain): \w+ after \d+ ms", await page.run(told))
    if kept:
        await page.until("document.querySelector('.picture img')?.naturalWidth === 1920")
        await page.until("document.querySelector('.picture circle')?.getAttribute('cx') === '760'")
        await page.until("document.querySelectorAll('.film canvas').length === 7")
        await page.key("d")
        await page.until("document.querySelector('.picture .over:not([hidden])')?.naturalWidth === 1920")
        await page.key("a")
        await page.until("document.querySelector('.picture .over').hidden")
    else:
        await page.until("document.querySelector('.picture').innerText.includes('trajectory: frames')")
        assert await page.run("document.querySelector('.film').hidden")
    await page.key("ArrowRight")
    await page.until(f"{told}.includes('<img src=x')")
    assert "\u202e" not in await page.run("document.body.innerText")
    await page.key("ArrowRight")
    await page.until(f"{told}.includes('frame not final: the screen changed')")
    assert "frame not final" in await page.run("document.querySelectorAll('.steps li')[2].innerText")
    await page.key("End")
    await page.until("location.hash.endsWith('step=end')")
    await page.until(f"{told}.includes('Reward 1') && {told}.includes('check_text_lines')")
    assert "owned" not in await page.run("document.title")
    said = "[...document.querySelectorAll('[role=status]')].map(e => e.textContent).join()"
    if not kept:
        assert "The file has all but them" in await page.run(said)
    await page.until("!document.querySelector('.controls button[disabled]')")
    await page.run(
        "[...document.querySelectorAll('button')].find(b => b.innerText.startsWith('Download')).click()"
    )
    await page.until(f"{said}.includes('.html,')")
    file = tmp_path / "browser" / f"{episode_id}.html"
    await until(file.is_file, 20)
    await opened_alone(file, chromium_root, kept=kept)


def moved(file: Path) -> Path:
    """The file in a folder of its own."""
    place = file.parent.with_name("alone")
    place.mkdir()
    file.rename(place / "page.html")
    return place


async def opened_alone(file: Path, chromium_root: Path | None, *, kept: bool) -> None:
    """The file by itself: the same steps, the same words."""
    place = moved(file)
    at = f"file://{place}/page.html" if chromium_root is None else "file:///mnt/page.html"
    async with browser_page(f"{at}#step=2", place, chromium_root) as page:
        await page.until("document.querySelector('#where')?.textContent === 'step 2 of 5'")
        assert "<img src=x" in await page.run("document.querySelector('#told').innerText")
        if kept:
            await page.until("document.querySelector('#below').naturalWidth > 0")
        else:
            assert "trajectory: frames" in await page.run("document.querySelector('#facts').textContent")
        await page.key("ArrowRight")
        await page.until("document.querySelector('#told').innerText.includes('not final')")
        assert page.problems == []


async def test_a_file_is_made_of_what_ended(recording: tuple[HostProcess, bool]) -> None:
    """Of an episode that goes on, and of one that never was, the host says so."""
    host, _ = recording
    async with AsyncClient(host.url) as client, client.episode() as episode:
        reply = await client.ask_host(host.url, f"/v1/episodes/{episode.episode_id}/replay")
        assert reply.status == 400
        assert b"still running" in reply.body
        reply = await client.ask_host(host.url, "/v1/episodes/..%2f..%2fstate/replay")
        assert reply.status == 404
        reply = await client.ask_host(host.url, "/v1/episodes/0123456789abcdef/replay")
        assert reply.status == 404
