"""The dashboard for who does not see it well, or uses no mouse: axe-core on every page, and the keyboard."""

from __future__ import annotations

import importlib.resources
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.browser import Page, browser_page
from tests.support.host_process import HostProcess

from osgym_sdk import AsyncClient

AXE = importlib.resources.files("axe_core_python").joinpath("axe.min.js").read_text("utf-8")

pytestmark = [pytest.mark.desktop, pytest.mark.timeout(240)]

VIOLATIONS = (
    "axe.run(document, {resultTypes: ['violations']}).then(r => r.violations.map(v =>"
    " [v.id, v.impact, v.nodes.slice(0, 3).map(n => n.html.slice(0, 120) + ' ' + n.failureSummary)]))"
)
FOCUS = "(e => [e.tagName, e.id, e.innerText?.trim().slice(0, 40)])(document.activeElement)"


@pytest.fixture
async def page(host: HostProcess, chromium_root: Path | None, tmp_path: Path) -> AsyncIterator[Page]:
    """The dashboard of the shared host."""
    folder = tmp_path / "browser"
    folder.mkdir()
    async with browser_page(f"{host.url}/ui", folder, chromium_root) as opened:
        await opened.size(1280, 800)
        yield opened


async def wrong(page: Page) -> list[Any]:
    """What axe finds on what is shown."""
    if not await page.run("typeof axe !== 'undefined'"):
        await page.run(AXE + "\n;true")
    violations: list[Any] = await page.run(VIOLATIONS)
    return violations


@pytest.mark.parametrize("dark", [False, True])
async def test_axe_finds_nothing_on_any_page(page: Page, client: AsyncClient, dark: bool) -> None:
    """Names, roles, order of headings, contrast in both colour schemes."""
    await page.size(1280, 800, dark=dark)
    task = {"id": "look", "instruction": "Look.", "config": [], "evaluator": {"func": "infeasible"}}
    async with client.episode(task, run="seen") as ended:
        await ended.step([{"op": "click", "x": 700, "y": 400}])
        await ended.step([{"op": "fail"}])
        await ended.evaluate()
    async with client.episode(task, run="seen") as episode:
        await episode.step([{"op": "click", "x": 700, "y": 400}])
        shown = {
            "desktops": "document.querySelector('.tile img:not([hidden])') !== null",
            f"desktop/{episode.replica_id}": "document.querySelector('.picture img:not([hidden])') !== null",
            "episodes": "document.querySelector('tbody tr') !== null",
            f"episode/{ended.episode_id}?step=1": "document.querySelector('.told h2') !== null",
            f"episode/{ended.episode_id}?step=end": "document.querySelector('.told pre') !== null",
            "runs": "document.querySelector('tbody tr') !== null",
            "run/seen": "document.querySelector('.attempt') !== null",
            "host": "document.querySelector('.room tbody tr') !== null",
            "events": "document.querySelector('tbody tr') !== null",
            "use": "document.querySelector('.picture.mine img:not([hidden])') !== null",
        }
        bad = {}
        for place, there in shown.items():
            await page.run(f"location.hash = '#/{place}'")
            await page.until(there)
            if violations := await wrong(page):
                bad[place] = violations
        await page.run("location.hash = '#/desktops'")  # what was used is given back
        await page.until("document.querySelector('.tile') !== null")
        assert not bad, json.dumps(bad, indent=1)
    await page.run("document.querySelector('main').append(document.createElement('button'))")
    assert [violation[0] for violation in await wrong(page)] == ["button-name"]


async def test_everything_is_reached_without_a_mouse(page: Page, client: AsyncClient) -> None:
    """The first Tab skips the head, Enter opens a desktop, its buttons follow."""
    async with client.episode() as episode:
        leased = f"replica {episode.replica_id}, leased"
        await page.until(f"document.querySelector('.tile[aria-label*=\"{leased}\"]') !== null")
        await tab(page)
        assert (await page.run(FOCUS))[2] == "Skip to the content"
        for wanted in ("Desktops", "Episodes", "Runs", "Host", "Events"):
            await tab(page)
            assert (await page.run(FOCUS))[2] == wanted
        await tab(page)
        assert (await page.run(FOCUS))[1] == "search"
        for _ in range(12):
            await tab(page)
            if await page.run("document.activeElement.classList.contains('tile')"):
                break
        name = await page.run("document.activeElement.getAttribute('aria-label')")
        assert leased in name
        assert await page.run("document.activeElement.matches(':focus-visible')")
        await page.call(
            "Input.dispatchKeyEvent", type="keyDown", key="Enter", text="\r", windowsVirtualKeyCode=13
        )
        await page.until(f"location.hash === '#/desktop/{episode.replica_id}'")
        await page.until("document.querySelector('.look .controls button')?.disabled === false")
        for _ in range(12):
            await tab(page)
            if (await page.run(FOCUS))[2] == "Take over":
                break
        assert (await page.run(FOCUS))[2] == "Take over"


async def tab(page: Page) -> None:
    """To the next thing that can be used."""
    for kind in ("keyDown", "keyUp"):
        await page.call("Input.dispatchKeyEvent", type=kind, key="Tab", code="Tab", windowsVirtualKeyCode=9)
