"""A guest without any agent: imported, frozen, cloned, seen and used through QEMU alone."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import shutil
import string
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.support.agentless_guest import Missing, agentless_disk
from tests.support.host_process import osgym

from osgym_host.guest_client import GuestClient, GuestRefused
from osgym_host.images.store import default_data_dir
from osgym_host.runtimes.base import BranchPoint, Replica, ReplicaSpec, Screen
from osgym_protocol.observation import ObservedFrame
from osgym_qemu.agentless.frames import Frame, decode
from osgym_qemu.cloning.parked_pool import ParkedPoolOptions
from osgym_qemu.network.user import UserNetwork
from osgym_qemu.runner.process import ProcessLauncher
from osgym_qemu.runtime import QemuOptions, QemuRuntime
from osgym_qemu.snapshots import Snapshot, SnapshotStore

SCREEN = (1280, 800)
INSTANCE = f"agentless-{os.getpid()}"
WALL = (0x33, 0x66, 0x99)
GREEN, RED = (0, 205, 0), (205, 0, 0)
"""Colours 2 and 1 of xterm."""
TERMINAL = (200, 250)
TITLE = (262, 49)
DISPLAY = (706, 86, 214, 40)
"""Of the calculator."""
SEVEN, FIVE, PLUS, THREE, EQUALS = (769, 366), (801, 396), (901, 426), (838, 426), (901, 456)

needs_qemu = pytest.mark.skipif(
    shutil.which("qemu-system-x86_64") is None, reason="missing: qemu-system-x86_64"
)
pytestmark = [needs_qemu, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def snapshot() -> Iterator[Snapshot]:
    """The guest's disk, imported and frozen as users do it."""
    try:
        disk = agentless_disk(default_data_dir())
    except Missing as missing:
        pytest.skip(f"missing: {missing}")
    with tempfile.TemporaryDirectory(prefix="osgym-agentless-") as folder:
        env = {"OSGYM_DATA_DIR": folder}
        size = "{}x{}".format(*SCREEN)
        options = ["--guest", "none", "--screen", size, "--ram-mib", "512", "--json"]
        taken = osgym("image", "import", str(disk), "--name", "plain", *options, **env)
        assert taken.returncode == 0, taken.stderr
        assert json.loads(taken.stdout)["firmware"] == "bios"
        frozen = osgym("image", "snapshot", "plain", "--accel", "tcg", timeout_s=280, **env)
        assert frozen.returncode == 0, frozen.stderr
        Path(folder).chmod(0o755)  # QEMU runs as a user of its own
        yield SnapshotStore(Path(folder)).resolve("plain")


class Desktop:
    """A replica, seen as the rest of the host sees it."""

    def __init__(self, replica: Replica, guest: GuestClient) -> None:
        self.replica = replica
        self.guest = guest
        self.seq = 0

    async def step(self, *actions: dict[str, Any], **options: Any) -> ObservedFrame:
        """One step; a refused one uses up no number."""
        done = await self.guest.step(self.seq + 1, actions, timeout_s=60, **options)
        self.seq += 1
        assert all(result.ok for result in done.observation.results)
        return done

    async def click(self, *at: tuple[int, int]) -> ObservedFrame:
        """Click here, and there, in one step."""
        return await self.step(*({"op": "click", "x": x, "y": y} for x, y in at))

    async def command(self, line: str) -> ObservedFrame:
        """Type a line into the terminal."""
        return await self.step(
            {"op": "click", "x": TERMINAL[0], "y": TERMINAL[1]},
            {"op": "type", "text": line, "press_enter": True},
        )


class Lab:
    """A started runtime, and desktops on it."""

    def __init__(self, runtime: QemuRuntime, snapshot: Snapshot, stack: AsyncExitStack) -> None:
        self.runtime = runtime
        self._snapshot = snapshot
        self._stack = stack
        self._generation = 0

    async def desktop(self, name: str, origin: BranchPoint | None = None) -> Desktop:
        """A clone, or a child of a point, that is ready."""
        self._generation += 1
        spec = ReplicaSpec(name, self._generation, self._snapshot, screen=Screen(*SCREEN), origin=origin)
        replica = await self.runtime.create(spec)
        guest = await self._stack.enter_async_context(GuestClient(replica.guest, token=replica.guest_token))
        assert (await guest.ready(timeout_s=30)).desktop_ready
        return Desktop(replica, guest)


@asynccontextmanager
async def started(snapshot: Snapshot) -> AsyncIterator[Lab]:
    """A runtime; afterwards nothing of its instance is left."""
    data_dir = snapshot.folder.parent.parent
    folder = data_dir / "run" / INSTANCE
    runtime = QemuRuntime(
        data_dir,
        INSTANCE,
        lambda tree: ProcessLauncher(folder, tree=tree),
        UserNetwork(folder, forwards=False),
        QemuOptions(parked=ParkedPoolOptions(target=0)),
        snapshot,
    )
    await runtime.start()
    try:
        async with AsyncExitStack() as stack:
            yield Lab(runtime, snapshot, stack)
    finally:
        await runtime.stop()
    assert not (folder / "guests").exists()
    assert not (folder / "vms").exists()


@pytest.fixture
async def lab(snapshot: Snapshot) -> AsyncIterator[Lab]:
    """A started runtime."""
    async with started(snapshot) as lab:
        yield lab


def picture(frame: ObservedFrame) -> Frame:
    return decode(bytes(frame.image))


def pixel(frame: ObservedFrame, at: tuple[int, int]) -> tuple[int, int, int]:
    found = picture(frame).image().getpixel(at)
    assert isinstance(found, tuple)
    return found[0], found[1], found[2]


def part(frame: ObservedFrame, region: tuple[int, int, int, int]) -> bytes:
    x, y, width, height = region
    return picture(frame).image().crop((x, y, x + width, y + height)).tobytes()


async def test_what_is_typed_arrives_character_by_character(lab: Lab) -> None:
    """The guest itself checks a text with every printable ASCII character, and colours its terminal."""
    one, other = await asyncio.gather(lab.desktop("one"), lab.desktop("other"))
    seen = await other.guest.observe()
    assert seen.observation.frame.screen == SCREEN
    text = "".join(char for char in string.printable[:95] if char != "'") * 2
    expected = hashlib.md5(text.encode()).hexdigest()
    await one.command(f"printf %s '{text}' | md5sum > /tmp/sum")
    said = await one.command(
        f"grep -q {expected} /tmp/sum && printf '\\033[42m' || printf '\\033[41m'; clear"
    )
    assert pixel(said, TERMINAL) == GREEN
    assert said.observation.settle is not None
    assert said.observation.settle.reason == "quiet"
    # The neighbour, cloned from the same memory, has seen nothing of it.
    assert (await other.guest.observe()).observation.frame.hash == seen.observation.frame.hash


async def test_clicks_reach_the_button_under_them(lab: Lab) -> None:
    """A sum that was clicked shows the same as one that was typed."""
    clicked, typed = await asyncio.gather(lab.desktop("clicked"), lab.desktop("typed"))
    empty = part(await clicked.guest.observe(), DISPLAY)
    shown = await clicked.click(SEVEN, FIVE, PLUS, THREE, EQUALS)
    assert part(shown, DISPLAY) != empty
    same = await typed.step(
        {"op": "click", "x": EQUALS[0] - 100, "y": 69},  # its title
        {"op": "move", "x": EQUALS[0], "y": EQUALS[1]},
        {"op": "type", "text": "75+3="},
    )
    assert part(same, DISPLAY) == part(shown, DISPLAY)
    assert pixel(shown, (600, 600)) == WALL


async def test_drag_wheel_and_held_keys_do_what_they_do_on_a_real_machine(lab: Lab) -> None:
    """A window is dragged by its title, text scrolled back and forth, Shift held over several keys."""
    desktop = await lab.desktop("drag")
    # What this leaves on the screen depends on nothing but the text.
    before = await desktop.command("seq 300")
    up = await desktop.step({"op": "scroll", "x": 200, "y": 250, "dy": -3})
    assert up.observation.frame.hash != before.observation.frame.hash
    down = await desktop.step({"op": "scroll", "dy": 3})
    assert down.observation.frame.hash == before.observation.frame.hash
    await desktop.step({"op": "key_down", "key": "shift"}, {"op": "key", "keys": ["a"]})
    released = await desktop.guest.post_json("/v1/release", {})
    assert released == {"released": {"keys": [0xFFE1], "buttons": []}}
    said = await desktop.command("a; [ $? = 127 ] && printf '\\033[42m' && clear")
    assert pixel(said, TERMINAL) == GREEN
    path = [list(TITLE), [400, 300], [TITLE[0], TITLE[1] + 400]]
    moved = await desktop.step({"op": "drag", "path": path})
    assert pixel(moved, TERMINAL) == WALL
    assert pixel(moved, (TERMINAL[0], TERMINAL[1] + 400)) == GREEN


async def test_lines_typed_ahead_and_clicks_in_a_row_are_what_they_say(lab: Lab) -> None:
    """Lines reach the program that a line before started; two clicks on a title are no double click."""
    desktop = await lab.desktop("ahead")
    await desktop.click(TERMINAL)
    text = "cat > /tmp/ahead\none line\nand another\n"
    await desktop.step({"op": "type", "text": text}, {"op": "key", "keys": ["ctrl", "d"]})
    said = await desktop.command(
        "[ \"$(cat /tmp/ahead)\" = \"$(printf 'one line\\nand another')\" ] && printf '\\033[42m'; clear"
    )
    assert pixel(said, TERMINAL) == GREEN
    await desktop.click(TITLE, TITLE)
    apart = await desktop.click(TITLE)
    assert pixel(apart, (600, 600)) == WALL
    twice = await desktop.step({"op": "click", "x": TITLE[0], "y": TITLE[1], "count": 2})
    assert pixel(twice, (600, 600)) == GREEN, "a double click maximises the terminal"


async def test_the_protocol_is_the_guest_agents(lab: Lab) -> None:
    """Numbers, replays, refusals that do nothing, frames that did not stay, and what cannot be had."""
    desktop = await lab.desktop("protocol")
    first = await desktop.click(TERMINAL)
    again = await desktop.guest.step(1, [{"op": "click", "x": 1, "y": 1}], timeout_s=30)
    assert again.observation.replayed
    assert again.image == first.image
    for action, field in (
        ({"op": "type", "text": "über"}, r"U\+00FC"),
        ({"op": "scroll", "dx": 1}, "horizontal"),
        ({"op": "click", "x": SCREEN[0], "y": 0}, "outside"),
        ({"op": "nonsense"}, "nonsense"),
    ):
        with pytest.raises(GuestRefused, match=field) as caught:
            await desktop.step({"op": "wait", "duration_ms": 1}, action)
        assert (caught.value.status, caught.value.code) == (400, "invalid_action")
        assert caught.value.details == {"index": 1}
    with pytest.raises(GuestRefused) as caught:
        await desktop.guest.step(5, [], timeout_s=30)
    assert caught.value.code == "bad_sequence"
    assert (await desktop.guest.health()).last_seq == desktop.seq == 1
    unchanged = await desktop.guest.observe({"unless_hash": first.observation.frame.hash})
    assert unchanged.observation.frame.unchanged
    assert unchanged.image == b""
    assert await desktop.guest.screen_size() == SCREEN
    assert decode(await desktop.guest.screenshot()) == picture(first)
    for call in (desktop.guest.execute("true"), desktop.guest.file("/etc/passwd"), desktop.guest.terminal()):
        with pytest.raises(GuestRefused) as caught:
            await call
        assert (caught.value.status, caught.value.code) == (501, "not_available")


async def test_a_frame_that_did_not_stay_final_is_known_by_the_next_call(lab: Lab) -> None:
    """Nobody watches in between; the next look finds it. `final` waits until it is."""
    desktop = await lab.desktop("late")
    line = {"op": "type", "text": "sleep 0.4; seq 50", "press_enter": True}
    at = {"op": "click", "x": TERMINAL[0], "y": TERMINAL[1]}
    early = await desktop.step(at, line, settle={"policy": "fast"})
    final = await desktop.guest.final(desktop.seq, wait_s=10)
    assert final.observation.final
    previous = final.observation.previous
    assert previous is not None
    assert (previous.seq, previous.final) == (desktop.seq, False)
    assert previous.changed_after_ms is not None
    assert final.observation.frame.hash != early.observation.frame.hash
    waited = await desktop.step({"op": "screenshot"}, settle={"policy": "fixed", "pause_ms": 200})
    settled = waited.observation.settle
    assert settled is not None
    assert (settled.reason, settled.wait_ms >= 200) == ("fixed", True)


async def test_a_branch_shows_the_parents_screen_and_goes_its_own_way(lab: Lab) -> None:
    """The VGA memory belongs to the branch as RAM and disk do."""
    parent = await lab.desktop("parent")
    seen = await parent.command("echo unsaved")
    point = await lab.runtime.branch(parent.replica)
    child, sibling = await asyncio.gather(lab.desktop("child", point), lab.desktop("sibling", point))
    await lab.runtime.release_point(point)
    for each in (child, sibling):
        assert (await each.guest.observe()).observation.frame.hash == seen.observation.frame.hash
    said = await child.command("printf '\\033[41m'; clear")
    assert pixel(said, TERMINAL) == RED
    for each in (parent, sibling):
        assert (await each.guest.observe()).observation.frame.hash == seen.observation.frame.hash


async def test_a_machine_that_is_gone_is_said_to_be_gone(lab: Lab) -> None:
    """Its calls end with an error of their own, and nothing of it stays behind."""
    desktop = await lab.desktop("gone")
    os.kill(desktop.replica.pid, 9)
    await asyncio.wait_for(desktop.replica.wait_dead(), 10)
    with pytest.raises(GuestRefused) as caught:
        await desktop.guest.observe()
    assert (caught.value.status, caught.value.code) == (503, "display_gone")
    await lab.runtime.destroy(desktop.replica)
