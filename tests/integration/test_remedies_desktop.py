"""The remedies are in force on a real replica: what used to move or to come late does not."""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from osgym_host.guest_client import GuestClient
from osgym_host.images.errors import ImageError
from osgym_host.images.store import Image, ImageStore, default_data_dir
from osgym_host.runtimes.base import ReplicaSpec
from osgym_host.runtimes.local.runtime import LocalRuntime

pytestmark = [pytest.mark.desktop, pytest.mark.full_image, pytest.mark.timeout(240)]

STEP_TIMEOUT_S = 30.0
STILL_FOR_S = 2.0
LOOKS = 8
REGION = [0, 0, 1920, 1000]


@pytest.fixture(scope="module")
def image() -> Image:
    """The full golden image."""
    try:
        return ImageStore(default_data_dir()).resolve("full")
    except ImageError as error:
        pytest.skip(f"missing: golden image full: {error}")


class Screen:
    """One replica, driven step by step."""

    def __init__(self, guest: GuestClient) -> None:
        self.guest = guest
        self.seq = 0

    async def open(self, command: str, window: str) -> None:
        """Start an application and wait until its window has been drawn."""
        await self.guest.launch(command, shell=True)
        name = shlex.quote(window)
        there = (
            f"for i in $(seq 300); do wmctrl -l | grep -qF {name} && break; sleep 0.1; done; "
            f"wmctrl -a {name} && wmctrl -r {name} -b add,maximized_vert,maximized_horz"
        )
        done = await self.guest.execute(there, shell=True)
        assert done.returncode == 0, done
        await self.do({"op": "screenshot"})
        await self.guest.final(self.seq, wait_s=20)

    async def do(self, *actions: dict[str, Any]) -> None:
        """One step under the default policy."""
        self.seq += 1
        await self.guest.step(self.seq, list(actions), timeout_s=STEP_TIMEOUT_S)

    async def assert_still(self) -> None:
        """The screen without the panel shows the same all the time."""
        first = (await self.guest.observe({"region": REGION})).image
        for _ in range(LOOKS):
            await asyncio.sleep(STILL_FOR_S / LOOKS)
            assert (await self.guest.observe({"region": REGION})).image == first


@pytest.fixture
async def screen(image: Image, tmp_path: Path) -> AsyncIterator[Screen]:
    """A fresh replica."""
    runtime = LocalRuntime(tmp_path, "remedies")
    await runtime.start()
    try:
        replica = await runtime.create(ReplicaSpec("still", 1, image))
        async with GuestClient(replica.guest) as guest:
            await guest.ready(timeout_s=60)
            yield Screen(guest)
    finally:
        await runtime.stop()


def click(x: int, y: int) -> dict[str, Any]:
    """A click as an internal action."""
    return {"op": "click", "x": x, "y": y}


def key(chord: str) -> dict[str, Any]:
    """A chord as an internal action."""
    return {"op": "key", "keys": chord.split("+")}


@pytest.mark.parametrize(("command", "window"), [("mousepad", "Mousepad"), ("featherpad", "FeatherPad")])
async def test_carets_do_not_blink(screen: Screen, command: str, window: str) -> None:
    """An editor with the focus stands still, in GTK and in Qt."""
    await screen.guest.execute(["sh", "-c", f"echo text > /home/user/{window}"])
    await screen.open(f"{command} /home/user/{window}", window)
    await screen.do(click(600, 600), {"op": "type", "text": "words"})
    await screen.assert_still()


async def test_gimp_stands_still_with_a_selection(screen: Screen) -> None:
    """The outline of a selection does not march, and no tool tip comes over a tool."""
    await screen.open("gimp --no-splash", "GNU Image Manipulation Program")
    await screen.do(key("ctrl+n"))
    await screen.guest.final(screen.seq, wait_s=5)
    await screen.do(key("Return"))
    await screen.guest.final(screen.seq, wait_s=5)
    await screen.do(key("ctrl+a"))
    await screen.assert_still()
    await screen.do({"op": "move", "x": 30, "y": 95})
    await screen.assert_still()


async def test_libreoffice_shows_no_tool_tips(screen: Screen) -> None:
    """The pointer rests on a tool bar, and nothing comes."""
    await screen.open("libreoffice --calc", "LibreOffice Calc")
    await screen.do({"op": "move", "x": 348, "y": 114})
    await screen.assert_still()


async def test_the_browser_has_its_flags(screen: Screen) -> None:
    """However it is started, the browser neither animates nor scrolls smoothly."""
    await screen.guest.launch("chromium about:blank", shell=True)
    looked = await screen.guest.execute(
        "for i in $(seq 100); do p=$(pgrep -o -x chrome) && grep -q . /proc/$p/cmdline && break; "
        "sleep 0.1; done; "
        "tr '\\0' ' ' < /proc/$p/cmdline",
        shell=True,
    )
    for flag in ("--disable-smooth-scrolling", "--force-prefers-reduced-motion"):
        assert flag in looked.output, looked
