"""Copies and checkpoints from the dashboard's page, of virtual machines, in a real browser."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.support.browser import browser_page
from tests.support.host_process import MACHINES, running_host

from osgym_qemu.snapshots import Snapshot
from osgym_sdk import AsyncClient

pytestmark = [pytest.mark.desktop, pytest.mark.timeout(300)]

SETTINGS = (*MACHINES, "trajectory=steps")
TAKE, COPY, KEEP = (f".look .controls button:nth-of-type({number})" for number in (1, 2, 3))
SAID = "document.querySelector('main [role=status]')?.innerText"


async def test_a_copy_is_used_and_a_checkpoint_opened(
    small_snapshot: Snapshot, chromium_root: Path | None, tmp_path: Path
) -> None:
    """The copy is an episode of its own, the policy's goes on; a checkpoint opens in page and script."""
    folder = tmp_path / "browser"
    folder.mkdir()
    name = f"ui-{os.getpid()}"
    with running_host(name, log_dir=tmp_path, warm=1, max_replicas=4, settings=SETTINGS) as host:
        async with AsyncClient(host.url) as client, client.episode(run="watched", wait_s=90) as episode:
            await episode.step([{"op": "move", "x": 700, "y": 400}])
            at = f"{host.url}/ui#/desktop/{episode.replica_id}"
            async with browser_page(at, folder, chromium_root) as page:
                await page.size(1440, 900)
                await page.until(f"document.querySelector('{COPY}')?.disabled === false")
                await page.click(COPY)
                await page.until(f"{SAID}?.startsWith('Replica')", 90)
                said = await page.run(SAID)
                copied = said.rpartition(" ")[2]
                assert copied != episode.episode_id
                await page.until(
                    "document.querySelector('.picture img:not([hidden])')?.naturalWidth === 1280", 60
                )
                await page.click(".picture.mine")
                await page.key("x")
                typed = (
                    f"fetch('/v1/episodes/{copied}/lines').then(r => r.text()).then(t => t.includes('\"x\"'))"
                )
                await page.until(typed)
                await page.run("document.querySelector('.controls button').click()")  # it is given back
                await page.until("location.hash === '#/desktops'")
                obs = await episode.step([{"op": "move", "x": 9, "y": 9}])
                assert obs.answer.step == 2
                assert not episode.trajectory.interventions
                lines = (await client.ask_host(host.url, f"/v1/episodes/{copied}/lines")).body.decode()
                assert f'"episode_id":"{episode.episode_id}"' in lines
                await page.run(f"location.hash = '#/desktop/{episode.replica_id}'")
                await page.until(f"document.querySelector('{KEEP}')?.disabled === false")
                await page.click(KEEP)
                kept = await page.until("document.querySelector('.look [role=status] a')?.textContent", 90)
                assert f'client.restore("{kept}")' in await page.run(SAID)
                assert (await episode.step("wait()")).answer.step == 3
                async with await client.restore(kept) as again:
                    assert again.trajectory.parent is not None
                    await again.step("move(5,5)")
                await page.click(".look [role=status] a")
                await page.until(f"location.hash === '#/restore/{kept}' && {SAID}?.startsWith('Replica')", 90)
                await page.run("document.querySelector('.controls button').click()")
                await page.until("location.hash === '#/desktops'")
                assert page.problems == []
            # Checkpoints of all hosts on this machine are listed: those of other tests stay.
            (checkpoint,) = [one for one in await client.checkpoints() if one.checkpoint_id == kept]
            await checkpoint.delete()
            assert kept not in {one.checkpoint_id for one in await client.checkpoints()}
