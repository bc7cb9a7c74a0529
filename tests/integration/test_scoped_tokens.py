"""Tokens with a scope from the command line to a real host: one trains, one looks, one is revoked."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import httpx
import pytest
from tests.support.browser import browser_page
from tests.support.host_process import osgym, start_host, wait_until

from osgym_host.images.store import Image
from osgym_sdk import AsyncClient, AuthError

pytestmark = [pytest.mark.desktop, pytest.mark.timeout(180)]

BUTTONS = "[...document.querySelectorAll('.look .controls button')]"


def made(path: Path, scope: str) -> str:
    """The token that the command prints."""
    done = osgym("token", "new", "--scope", scope, "--name", f"the-{scope}", OSGYM_TOKENS_FILE=str(path))
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


async def test_one_trains_one_looks_one_is_revoked(
    small_image: Image, chromium_root: Path | None, tmp_path: Path
) -> None:
    """A desktop is used by a `run` token; the page of an `observe` token shows it, and offers nothing."""
    path = tmp_path / "tokens"
    run, observe, admin = (made(path, scope) for scope in ("run", "observe", "admin"))
    host = start_host(
        f"tokens-{os.getpid()}", warm=1, max_replicas=2, settings=[f"tokens_file={path}"], wait=False
    )
    try:
        for token, code in ((observe, 1), (run, 1), (admin, 0)):
            done = osgym("host", "drain", "--stop", "--host", host.url, OSGYM_TOKEN=token)
            assert done.returncode == code, done.stderr
            assert ("needs a token of the scope admin" in done.stderr) == (code == 1)
        async with AsyncClient(host.url, token=observe) as looking:
            with pytest.raises(AuthError, match="scope run; the-observe has observe"):
                await looking.episode().start()
        async with AsyncClient(host.url, token=run) as client, client.episode() as episode:
            await episode.step([{"op": "click", "x": 700, "y": 400}])
            result = await episode.execute(["echo", "inside"])
            assert result.stdout.strip() == "inside"
            await only_looks(host.url, observe, episode.replica_id, chromium_root, tmp_path)
            assert osgym("token", "revoke", "the-admin", "--file", str(path)).returncode == 0
            wait_until(lambda: _status(host.url, admin) == 401, 10, "the token is refused")
            await episode.step("wait()")
    finally:
        code = host.stop()
        host.assert_nothing_left()
        shutil.rmtree(host.data_dir / "state" / host.instance, ignore_errors=True)
    assert code == 0, host.tail()
    assert not any(token in host.log.read_text() for token in (run, observe, admin))


def _status(url: str, token: str) -> int:
    headers = {"Authorization": f"Bearer {token}"}
    return httpx.get(f"{url}/v1/host", headers=headers, timeout=20).status_code


async def only_looks(
    url: str, token: str, replica_id: str, chromium_root: Path | None, tmp_path: Path
) -> None:
    """The page shows the live desktop; what it cannot do is not there, or says what it would need."""
    folder = tmp_path / "browser"
    folder.mkdir()
    async with browser_page(f"{url}/ui", folder, chromium_root) as page:
        await page.until("document.querySelector('#ask')?.open")
        await page.click("#token")
        await page.type(token)
        await page.click("#ask button")
        await page.until("document.querySelector('.tile img:not([hidden])') !== null")
        assert "the-observe: observe" in await page.run("document.querySelector('#host').textContent")
        assert await page.run("document.querySelector('a[href=\"#/use\"]').hidden")
        await page.run(f"location.hash = '#/desktop/{replica_id}'")
        await page.until("document.querySelector('.picture img:not([hidden])')?.naturalWidth === 1280")
        await page.until("document.querySelector('.steps')?.innerText.includes('click x=700 y=400')")
        assert await page.run(f"{BUTTONS}.length") == 3
        wanted = "The token the-observe may observe only; this needs one of the scope admin."
        assert await page.run(f"{BUTTONS}.every(b => b.disabled && b.title === '{wanted}')")
        await page.run("location.hash = '#/use'")
        await page.until("document.querySelector('main [role=status]').innerText.includes('scope run')")
        assert [problem for problem in page.problems if "403" not in problem] == []
