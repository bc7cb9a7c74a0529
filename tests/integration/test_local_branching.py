"""Forks, checkpoints and suspensions over namespaces: CRIU dumps a desktop in the middle of its work."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from PIL import ImageChops
from tests.support.host_process import HostProcess, running_host, start_host, wait_until
from tests.support.template_episodes import PANEL_PX
from tests.support.waiting import until

from osgym_host.images.store import Image, default_data_dir
from osgym_host.runtimes.local.criu.installed import find_criu
from osgym_sdk import AsyncClient, BranchFailed, Client, Episode, Unsupported
from osgym_sdk import Observation as Frame

CRIU = find_criu()
pytestmark = [
    pytest.mark.desktop,
    pytest.mark.skipif(not CRIU.usable, reason=f"missing: {CRIU.lacking}"),
]

SETTINGS = ("branching=on",)
TEXT = "never saved"
OPEN_EDITOR = "setsid mousepad >/dev/null 2>&1 </dev/null &"
PAGE = """<title>page</title><textarea autofocus oninput="document.title = 'page ' + value"></textarea>"""
SANDBOXED = """
import ctypes, struct, time
libc = ctypes.CDLL(None)
code = struct.pack("HBBI", 6, 0, 0, 0x7FFF0000)  # lets every call pass
program = ctypes.create_string_buffer(code)
class Filter(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("program", ctypes.c_void_p)]
assert libc.prctl(38, 1, 0, 0, 0) == 0
assert libc.prctl(22, 2, ctypes.byref(Filter(1, ctypes.addressof(program))), 0, 0) == 0
print("filtered", flush=True)
time.sleep(600)
"""


def skip_without_rights(error: BranchFailed) -> None:
    """Skip where this machine's CRIU cannot dump."""
    if "rlimit" in str(error):
        pytest.skip("missing: root with CAP_SYS_RESOURCE, which criu dump needs")
    raise error


@pytest.fixture
def host(small_image: Image, tmp_path: Path) -> Iterator[HostProcess]:
    with running_host(f"lfork-{os.getpid()}", log_dir=tmp_path, warm=1, settings=SETTINGS) as host:
        yield host


def begin(client: Client, text: str = TEXT) -> Episode:
    """An episode with text in an editor that no file has."""
    episode = client.episode(wait_s=60, lease_ttl_s=300)
    episode.start()
    episode.execute(OPEN_EDITOR)
    until = time.monotonic() + 30
    while not episode.execute("xdotool search --onlyvisible --class mousepad || true").stdout.strip():
        assert time.monotonic() < until, "the editor did not open"
    episode.step({"op": "type", "text": text}, settle="certain")
    return episode


def text_of(episode: Episode) -> str:
    """All text in the editor, by the clipboard."""
    episode.step([{"op": "key", "keys": ["ctrl", "a"]}, {"op": "key", "keys": ["ctrl", "c"]}])
    found = episode.execute("timeout 10 xclip -o -selection clipboard").stdout
    episode.step({"op": "key", "keys": ["ctrl", "End"]})
    return str(found)


def assert_same_picture(one: Frame, other: Frame) -> None:
    """Equal in every pixel but those of the panel's clock, which goes on."""
    box = ImageChops.difference(one.image.convert("RGB"), other.image.convert("RGB")).getbbox()
    assert box is None or box[1] >= one.image.height - PANEL_PX, f"the frames differ in {box}"


def shows(episode: Episode, title: str) -> None:
    """Wait for a window with this in its title."""
    wait_until(lambda: any(title in w.title for w in episode.windows()), 60, f"a window {title}")


def kept_of(host: HostProcess) -> set[str]:
    """Names of the dumps that a host agent keeps on its disk."""
    folder = host.data_dir / "checkpoints-local"
    return {path.name for path in folder.iterdir()} if folder.is_dir() else set()


def test_children_go_on_where_the_parent_was(host: HostProcess) -> None:
    """Same pixels, the text that nobody saved, apart from then on; children have children; nothing stays."""
    with Client(host.url) as client, begin(client) as parent:
        parent.execute("echo parent > ~/whose; mkdir ~/made")
        before = parent.observe()
        try:
            children = parent.fork(2, wait_s=60)
        except BranchFailed as error:
            skip_without_rights(error)
        for number, child in enumerate(children):
            assert_same_picture(before, child.observe())
            child.step({"op": "type", "text": f" {number}"})
            child.execute(f"echo {number} > ~/whose && python3 -c \"import os; os.rename('made', 'm')\"")
        assert [text_of(child) for child in children] == [f"{TEXT} 0", f"{TEXT} 1"]
        assert [child.execute("cat ~/whose").stdout for child in children] == ["0\n", "1\n"]
        assert (text_of(parent), parent.execute("cat ~/whose").stdout) == (TEXT, "parent\n")
        assert len({one.replica_id for one in (parent, *children)}) == 3
        parent.close()
        (grandchild,) = children[0].fork()
        children[0].close()
        grandchild.step({"op": "type", "text": "!"})
        assert text_of(grandchild) == f"{TEXT} 0!"
        for one in (children[1], grandchild):
            one.close()
        assert list((host.data_dir / "run" / host.instance / "points").iterdir()) == []


def test_a_program_with_a_sandbox_of_its_own_is_refused_by_name(host: HostProcess) -> None:
    """The error names it and says what helps; the parent goes on, and forks once the program is closed."""
    with Client(host.url) as client, begin(client) as parent:
        parent.write_file("~/boxed.py", SANDBOXED)
        parent.execute("python3 ~/boxed.py > ~/said 2>&1 & until grep -q filtered ~/said; do sleep 0.1; done")
        with pytest.raises(BranchFailed, match=r"python3.* has its own sandbox") as refused:
            parent.fork(1)
        assert "--no-sandbox" in str(refused.value)
        with pytest.raises(BranchFailed, match="its own sandbox"):
            parent.checkpoint(keep=True)
        assert text_of(parent) == TEXT
        parent.execute("pkill -f boxed.py; sleep 0.2")
        try:
            (child,) = parent.fork(1)
        except BranchFailed as error:
            skip_without_rights(error)
        child.close()


async def test_a_fork_that_its_client_gives_up_harms_nobody(host: HostProcess) -> None:
    """At any moment of the dump, also in a desktop that is paused as soon as no call uses it."""
    points = host.data_dir / "run" / host.instance / "points"
    async with AsyncClient(host.url) as client, client.episode(wait_s=60, think="paused") as parent:
        for wait_s in (0.05, 0.15, 0.3, 0.45):
            forking = asyncio.create_task(parent.fork(1))
            await asyncio.sleep(wait_s)
            forking.cancel()
            (made,) = await asyncio.gather(forking, return_exceptions=True)
            for child in made if isinstance(made, list) else ():  # it was quicker than the client
                await child.aclose()
            await parent.step("click(400,400)")
        await until(lambda: not points.exists() or not any(points.iterdir()), 20)
        await until(lambda: len(host.replicas("leased")) == 1, 20)
        try:
            (child,) = await parent.fork(1)
        except BranchFailed as error:
            skip_without_rights(error)
        assert (await child.step("wait()")).step == (await parent.step("wait()")).step
        await child.aclose()


@pytest.mark.full_image
def test_a_browser_forks_without_a_sandbox_of_its_own(tmp_path: Path) -> None:
    """With its sandbox it is refused; without, the child has the page with what was typed into it."""
    name = f"lweb-{os.getpid()}"
    with (
        running_host(name, log_dir=tmp_path, warm=1, settings=SETTINGS, image="full") as host,
        Client(host.url) as client,
    ):
        for option in ("", "--no-sandbox"):
            with client.episode(wait_s=60, lease_ttl_s=300) as parent:
                parent.write_file("~/page.html", PAGE)
                parent.execute(f"setsid google-chrome {option} ~/page.html >/dev/null 2>&1 </dev/null &")
                shows(parent, "page")
                parent.step({"op": "type", "text": TEXT}, settle="certain")
                before = parent.observe()
                if not option:
                    with pytest.raises(BranchFailed, match="'chrome' has its own sandbox"):
                        parent.fork(1)
                    continue
                try:
                    (child,) = parent.fork(1, wait_s=60)
                except BranchFailed as error:
                    skip_without_rights(error)
                assert_same_picture(before, child.observe())
                child.step({"op": "type", "text": "!"})
                shows(child, f"page {TEXT}!")
                assert not any("!" in w.title for w in parent.windows())
                child.close()


def test_a_checkpoint_outlives_a_killed_host_agent(small_image: Image, tmp_path: Path) -> None:
    """kill -9: the next agent restores the kept one, and removes what the killed one did not keep."""
    instance = f"lkept-{os.getpid()}"
    points = default_data_dir() / "run" / instance / "points"
    first = start_host(instance, log_dir=tmp_path, warm=1, settings=SETTINGS)
    try:
        with Client(first.url) as client:
            parent = begin(client)
            try:
                kept = parent.checkpoint(keep=True, ttl_s=600)
            except BranchFailed as error:
                skip_without_rights(error)
            before = parent.observe()
            parent.step({"op": "type", "text": " later"})
            parent.checkpoint()
            assert len(list(points.iterdir())) == 1
    finally:
        first.process.kill()
        first.process.wait(10)
    with running_host(instance, log_dir=tmp_path, warm=1, settings=SETTINGS) as second:
        assert not points.exists()
        with Client(second.url) as client:
            for _ in range(2):
                with client.restore(kept.checkpoint_id) as restored:
                    assert_same_picture(before, restored.observation)
                    assert text_of(restored) == TEXT
            (found,) = [c for c in client.checkpoints() if c.checkpoint_id == kept.checkpoint_id]
            assert found.info.expires_at == pytest.approx(time.time() + 600, abs=120)
            found.delete()
        wait_until(lambda: kept.checkpoint_id not in kept_of(second), 10, "the end of a deleted checkpoint")
    first.assert_nothing_left()


def test_a_suspended_episode_comes_back_after_its_host_agent_was_killed(
    small_image: Image, tmp_path: Path
) -> None:
    """Its place is another's meanwhile, its processes are gone; program, text and pixels come back."""
    instance = f"lsusp-{os.getpid()}"
    settings = (*SETTINGS, "max_replicas=1")
    first = start_host(instance, log_dir=tmp_path, warm=1, settings=settings)
    try:
        with Client(first.url) as client:
            episode = begin(client)
            before = episode.observe()
            try:
                suspended = episode.suspend(ttl_s=600)
            except BranchFailed as error:
                skip_without_rights(error)
            wait_until(lambda: not first.replicas("leased"), 20, "the end of a suspended replica")
            with client.episode(wait_s=60) as other:
                assert other.execute("pgrep -c mousepad").stdout.strip() == "0"
    finally:
        first.process.kill()
        first.process.wait(10)
    with running_host(instance, log_dir=tmp_path, warm=0, settings=settings) as second:
        assert suspended.checkpoint_id in kept_of(second)
        with Client(second.url) as client, client.resume(suspended.checkpoint_id) as resumed:
            assert_same_picture(before, resumed.observation)
            resumed.step({"op": "type", "text": " until now"})
            assert text_of(resumed) == f"{TEXT} until now"
            wait_until(lambda: suspended.checkpoint_id not in kept_of(second), 10, "what was resumed to go")
    first.assert_nothing_left()


def test_another_host_resumes_what_is_on_shared_storage(small_image: Image, tmp_path: Path) -> None:
    """It sees without a restart what the other has put there, and that a resumed one is gone."""
    settings = (*SETTINGS, f"checkpoints_dir={tmp_path / 'shared'}")
    with (
        running_host(f"lone-{os.getpid()}", log_dir=tmp_path, warm=1, settings=settings) as one,
        running_host(f"ltwo-{os.getpid()}", log_dir=tmp_path, warm=0, settings=settings) as two,
        Client(one.url) as client,
        Client(two.url) as other,
    ):
        assert other.checkpoints() == []
        episode = begin(client)
        before = episode.observe()
        try:
            suspended = episode.suspend(ttl_s=600)
        except BranchFailed as error:
            skip_without_rights(error)
        with other.resume(suspended.checkpoint_id) as resumed:
            assert resumed.host == two.url
            assert_same_picture(before, resumed.observation)
            assert text_of(resumed) == TEXT
        assert client.checkpoints() == []
        assert [path.name for path in (tmp_path / "shared").iterdir()] == ["episodes"]
        assert list((tmp_path / "shared/episodes").iterdir()) == []


def test_without_the_setting_the_reason_is_told(small_image: Image, tmp_path: Path) -> None:
    """Nothing is dumped; the error says which setting is needed."""
    with (
        running_host(f"lnofork-{os.getpid()}", log_dir=tmp_path, warm=1) as host,
        Client(host.url) as client,
        client.episode(wait_s=60) as episode,
        pytest.raises(Unsupported, match="the setting branching is off"),
    ):
        episode.fork(1)
