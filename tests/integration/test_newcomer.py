"""docs/start.md walked by somebody new: a desktop watched, taken over, broken, shown to somebody.

The host agent, the script and the commands are those of the page; the browser is a real one.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from tests.support import ROOT
from tests.support.browser import Page, browser_page
from tests.support.host_process import HostProcess, osgym, running_host
from tests.support.page import sections

from osgym_host.images.store import Image

pytestmark = [pytest.mark.desktop, pytest.mark.timeout(300)]

PAGE = ROOT / "docs" / "start.md"


@pytest.fixture(scope="module")
def own_host(small_image: Image, tmp_path_factory: pytest.TempPathFactory) -> Iterator[HostProcess]:
    """A host agent as the page starts it, but on a free port."""
    (_, serve) = (block.text for block in sections(PAGE.read_text("utf-8"))["A host"])
    assert "osgym host serve --set image=small --set trajectory=frames" in serve
    folder = tmp_path_factory.mktemp("newcomer")
    with running_host(f"new-{os.getpid()}", log_dir=folder, settings=("trajectory=frames",)) as running:
        yield running


@pytest.fixture(scope="module")
def script(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page's first.py."""
    (code,) = (b.text for b in sections(PAGE.read_text("utf-8"))["A policy"] if b.kind == "python")
    path = tmp_path_factory.mktemp("script") / "first.py"
    path.write_text(code)
    return path


@contextlib.asynccontextmanager
async def started(script: Path, host: HostProcess, seconds: float) -> AsyncIterator[asyncio.Task[str]]:
    """`python first.py SECONDS`; the task gives what it printed."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        str(script),
        str(seconds),
        cwd=ROOT,
        env={**os.environ, "OSGYM_HOSTS": host.url},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )

    async def printed() -> str:
        async with asyncio.timeout(120):
            said, _ = await process.communicate()
        assert process.returncode == 0, said.decode()
        return said.decode()

    result = asyncio.create_task(printed())
    try:
        yield result
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await asyncio.gather(result, return_exceptions=True)


@pytest.fixture
async def page(own_host: HostProcess, chromium_root: Path | None, tmp_path: Path) -> AsyncIterator[Page]:
    """The dashboard, open."""
    folder = tmp_path / "browser"
    folder.mkdir()
    async with browser_page(f"{own_host.url}/ui", folder, chromium_root) as opened:
        await opened.size(1280, 800)
        yield opened
        assert opened.problems == []


async def test_watched(page: Page, own_host: HostProcess, script: Path) -> None:
    """Live view with actions drawn, steps beside it, a reward, a run with a green attempt."""
    async with started(script, own_host, 1) as done:
        await page.until("document.querySelector('.tile img:not([hidden])')?.naturalWidth === 320")
        await page.click(".tile:has(img:not([hidden]))")
        await page.until("document.querySelector('.picture circle')?.getAttribute('cx') === '760'")
        await page.until("document.querySelector('.steps')?.innerText.includes('Buy milk, eggs and bread.')")
        assert "reward 1.0 attempts 1 interventions 0" in await done
    await page.click("nav a[href='#/runs']")
    await page.until("document.querySelector('tbody')?.innerText.includes('first')")
    await page.click("tbody a")
    await page.until("document.querySelector('.attempt rect') !== null")


async def test_taken_over(page: Page, own_host: HostProcess, script: Path) -> None:
    """What a person types is between the policy's steps, and the result says so."""
    async with started(script, own_host, 2) as done:
        await page.until("document.querySelector('.tile img:not([hidden])') !== null")
        await page.click(".tile:has(img:not([hidden]))")
        await page.until("document.querySelector('.steps')?.innerText.includes('click')")
        await page.click(".controls button:nth-of-type(1):enabled")
        await page.click(".picture.mine")
        await page.key("x")
        await page.until("document.querySelector('.steps').innerText.includes('a person acted')")
        await page.click(".controls button:nth-of-type(1)")
        counted = re.search(r"interventions (\d+)", await done)
        assert counted is not None
        assert int(counted[1]) >= 2


async def test_broken_and_shown(
    page: Page, own_host: HostProcess, script: Path, chromium_root: Path | None, tmp_path: Path
) -> None:
    """A killed desktop costs an attempt, not the task; its episode becomes one file that opens by itself."""
    async with started(script, own_host, 1) as done:
        await page.until("document.querySelector('.tile img:not([hidden])') !== null")
        await page.click(".tile:has(img:not([hidden]))")
        await page.until("document.querySelector('.steps')?.innerText.includes('click')")
        rows = (await asyncio.to_thread(osgym, "replica", "ls", OSGYM_HOSTS=own_host.url)).stdout.splitlines()
        pid = rows[0].split().index("PID")
        (leased,) = [line.split() for line in rows if " leased " in line]
        os.kill(int(leased[pid]), signal.SIGKILL)
        said = await done
    assert "reward 1.0 attempts 2" in said
    lost = "[...document.querySelectorAll('tbody tr')].some(r => r.innerText.includes('replica_lost'))"
    await page.click("nav a[href='#/events']")
    await page.until(lost)
    name = re.search(r"episode (\S+)", said)
    assert name is not None
    file = tmp_path / "first.html"
    (command,) = (block.text for block in sections(PAGE.read_text("utf-8"))["Show it to somebody"])
    words = [{"EPISODE": name[1], "first.html": str(file)}.get(word, word) for word in command.split()]
    assert words[:4] == ["osgym", "data", "replay", name[1]] and words[-1] == str(file)
    shown = await asyncio.to_thread(osgym, *words[1:])
    assert shown.returncode == 0, shown.stderr
    folder = tmp_path / "mail"
    folder.mkdir()
    if chromium_root is not None:  # that browser has a root of its own, and of this one only its folder
        file = file.rename(folder / "first.html")
    at = f"file://{file}" if chromium_root is None else "file:///mnt/first.html"
    async with browser_page(at, folder, chromium_root) as mail:
        await mail.until("document.body?.innerText.includes('reward 1, 6 steps')")
        await mail.until("[...document.images].some(i => i.complete && i.naturalWidth > 300)")
        assert mail.problems == []
