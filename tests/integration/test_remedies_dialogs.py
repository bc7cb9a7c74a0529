"""GTK's fixed waits on a real replica: with the remedy they are gone, and what is saved is the same."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from osgym_host.guest_client import GuestClient
from osgym_host.images.errors import ImageError
from osgym_host.images.store import Image, ImageStore, default_data_dir
from osgym_host.runtimes.base import ReplicaSpec
from osgym_host.runtimes.local.runtime import LocalRuntime

pytestmark = [pytest.mark.desktop, pytest.mark.timeout(240)]

STEP_TIMEOUT_S = 30.0
WATCHED_MS = 1000
TRIES = 5
BUTTON_MS = 250
"""What GTK waits between Return and what the button does."""
SUBMENU_MS = 225
NOTE = "/home/user/note.txt"
LIBRARY = "/usr/lib/osgym/remedies/gtk-timers/gtk_timers.so"


def with_remedy(flavor: str) -> Image:
    """The golden image of a flavor; skips where it is missing or was baked without the remedy."""
    try:
        found = ImageStore(default_data_dir()).resolve(flavor)
    except ImageError as error:
        pytest.skip(f"missing: golden image {flavor}: {error}")
    if not any(remedy.applied for remedy in found.manifest.remedies if remedy.name == "gtk-timers"):
        pytest.skip("missing: the remedy, this image was baked without")
    return found


class Desk:
    """One replica, driven step by step."""

    def __init__(self, guest: GuestClient) -> None:
        self.guest = guest
        self.seq = 0

    async def open(self, command: str, window: str) -> None:
        """Start an application and wait until its window has been drawn."""
        await self.guest.launch(command, shell=True)
        there = (
            f"for i in $(seq 300); do wmctrl -l | grep -qF {window} && break; sleep 0.1; done; "
            f"wmctrl -a {window} && wmctrl -r {window} -b add,maximized_vert,maximized_horz"
        )
        done = await self.guest.execute(there, shell=True)
        assert done.returncode == 0, done
        await self.do({"op": "screenshot"})

    async def end(self, program: str, window: str) -> None:
        """End a program and wait until its window is gone."""
        gone = (
            f"pkill -x {program}; for i in $(seq 300); do wmctrl -l | grep -qF {window} || exit 0; "
            "sleep 0.1; done; exit 1"
        )
        done = await self.guest.execute(gone, shell=True)
        assert done.returncode == 0, done

    async def do(self, *actions: dict[str, Any]) -> None:
        """One step, and the frame that is final after it."""
        self.seq += 1
        await self.guest.step(self.seq, list(actions), timeout_s=STEP_TIMEOUT_S)
        await self.guest.final(self.seq, wait_s=20)

    async def last_change_ms(self, action: dict[str, Any]) -> float:
        """One step; return when the screen changed for the last time within a second after it."""
        self.seq += 1
        settle = {"policy": "fixed", "pause_ms": WATCHED_MS}
        shown = await self.guest.step(self.seq, [action], settle=settle, timeout_s=STEP_TIMEOUT_S)
        assert shown.observation.settle is not None
        return shown.observation.settle.last_change_ms or 0.0


@asynccontextmanager
async def replica_of(image: Image, tmp_path: Path) -> AsyncIterator[Desk]:
    """A fresh replica of an image."""
    runtime = LocalRuntime(tmp_path, "dialogs")
    await runtime.start()
    try:
        replica = await runtime.create(ReplicaSpec("dialogs", 1, image))
        async with GuestClient(replica.guest) as guest:
            await guest.ready(timeout_s=60)
            yield Desk(guest)
    finally:
        await runtime.stop()


@pytest.fixture
async def desk(tmp_path: Path) -> AsyncIterator[Desk]:
    """A fresh replica of the small image."""
    async with replica_of(with_remedy("small"), tmp_path) as made:
        yield made


@pytest.fixture
async def full_desk(tmp_path: Path) -> AsyncIterator[Desk]:
    """A fresh replica of the full image."""
    async with replica_of(with_remedy("full"), tmp_path) as made:
        yield made


def key(chord: str) -> dict[str, Any]:
    """A chord as an internal action."""
    return {"op": "key", "keys": chord.split("+")}


async def save(desk: Desk, path: str) -> float:
    """Carry a save dialog through; return when the screen changed for the last time after Return."""
    await desk.do(key("ctrl+shift+s"))
    await desk.do(key("ctrl+a"), {"op": "type", "text": path})
    return await desk.last_change_ms(key("Return"))


async def test_a_save_dialog_closes_at_once(desk: Desk) -> None:
    """Left alone it closes when GTK's timer fires, never sooner; else sooner. Both save the same."""
    await desk.open("OSGYM_GTK_TIMERS=off mousepad --disable-server", "Mousepad")
    await desk.do({"op": "type", "text": "hello\n"})
    assert await save(desk, NOTE) >= BUTTON_MS
    plain = await desk.guest.file(NOTE)
    await desk.end("mousepad", "Mousepad")
    await desk.open("mousepad --disable-server", "Mousepad")
    await desk.do({"op": "type", "text": "hello\n"})
    late_ms = []
    for number in range(TRIES):  # a busy machine is slow too; the timer is never early
        late_ms.append(await save(desk, f"{NOTE}.{number}"))
        if late_ms[-1] < BUTTON_MS:
            break
    assert late_ms[-1] < BUTTON_MS, late_ms
    assert plain == b"hello\n" == await desk.guest.file(f"{NOTE}.0")


async def test_a_submenu_opens_at_once(desk: Desk) -> None:
    """The file manager's menu, in GTK 2: its first entry has a submenu, and the pointer is on it."""

    async def submenu_ms() -> float:
        late_ms = await desk.last_change_ms({"op": "click", "x": 900, "y": 600, "button": "right"})
        await desk.do(key("Escape"), key("Escape"), key("Escape"))
        return late_ms

    await desk.open("pcmanfm /home/user", "user")
    late_ms = []
    for _ in range(TRIES):
        late_ms.append(await submenu_ms())
        if late_ms[-1] < SUBMENU_MS:
            break
    assert late_ms[-1] < SUBMENU_MS, late_ms
    await desk.end("pcmanfm", "user")  # the desktop's own, which opens all windows
    await desk.open("OSGYM_GTK_TIMERS=off pcmanfm /home/user", "user")
    assert await submenu_ms() >= SUBMENU_MS


async def test_every_program_has_it(desk: Desk) -> None:
    """However a program is started, the library is in it, and the environment says nothing of it."""
    for start in ("", "env -i /bin/", "sudo "):
        done = await desk.guest.execute(f"{start}cat /proc/self/maps", shell=True)
        assert LIBRARY in done.output, start
        assert not done.error, done
    assert "LD_PRELOAD" not in (await desk.guest.execute("env", shell=True)).output


PAGE = "/home/user/page.html"


@pytest.mark.full_image
async def test_chromium_lives_through_its_dialogs(full_desk: Desk) -> None:
    """It saves a page and opens it again by GTK's dialogs, in one process, and saves what it saves without.

    As a module of GTK the remedy ended it at the first dialog.
    """
    desk, saved = full_desk, []
    text = "<!doctype html><title>A page</title><p>Grüße ☃</p>"
    await desk.guest.upload(PAGE, text.encode())
    for switch, name in (("", "with.html"), ("OSGYM_GTK_TIMERS=off ", "without.html")):
        await desk.open(f"{switch}google-chrome --no-first-run --new-window file://{PAGE}", "'A page'")
        begun = await _browser(desk)
        await desk.do(key("ctrl+s"))
        await desk.do(key("ctrl+a"), {"op": "type", "text": f"/home/user/{name}"})
        await desk.do(key("alt+s"))  # Return does nothing in this dialog, with the remedy or without
        path = f"/home/user/{name}"
        wait = f"for i in $(seq 200); do test -s {path} && break; sleep 0.1; done; cat {path}"
        saved.append((await desk.guest.execute(wait, shell=True)).output)
        await desk.do(key("ctrl+o"))
        await desk.do({"op": "type", "text": path})
        await desk.do(key("alt+o"))
        await desk.do(key("ctrl+l"), key("ctrl+c"))
        shown = await desk.guest.execute("timeout 10 xsel -b", shell=True)
        assert shown.output == f"file://{path}", "the page that was saved is open"
        assert await _browser(desk) == begun != "", "it is the same process"
        await desk.end("chrome", "'A page'")
    assert "Grüße ☃" in saved[0]
    assert saved[0] == saved[1]


async def _browser(desk: Desk) -> str:
    """Process number of the browser itself, which is older than its helpers."""
    return (await desk.guest.execute("pgrep -o -x chrome", shell=True)).output
