"""A guest that runs OSWorld's server and not our agent: its endpoints, screen and input through ours."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.support.osworld_replica import replica

from osgym_host.addresses import GuestAddress, UnixAddress
from osgym_host.guest_client import GuestClient, GuestRefused
from osgym_host.images.store import Image
from osgym_qemu.agentless import osworld as adapter
from osgym_qemu.agentless.frames import decode
from osgym_qemu.agentless.guest import AgentlessGuest, MachineFacts, ScreenSource
from osgym_qemu.agentless.serve import HttpRequest, ServedResponse, UnixServer

TEXT = 'typed <by> "OSWorld\'s" server: 100% & more'
NOTE = "/home/user/note.txt"


@asynccontextmanager
async def served(address: GuestAddress, folder: Path) -> AsyncIterator[GuestClient]:
    """A client of what stands for a guest agent in front of the server at this address."""
    facts = MachineFacts(generation=3, qmp=None, pid=None, server=address, screen=ScreenSource.SERVER)
    guest = await AgentlessGuest.open(facts, folder / "guest.sock")
    try:
        async with GuestClient(guest.address) as client:
            yield client
    finally:
        await guest.close()
    assert not (folder / "guest.sock").exists()


@pytest.mark.desktop
async def test_a_task_is_set_up_done_and_read_back_through_osworlds_server(
    small_image: Image, tmp_path: Path
) -> None:
    """Files and commands are passed on; screen and input are `/screenshot` and pyautogui."""
    (tmp_path / "data").mkdir()
    async with replica(small_image, tmp_path / "data") as address, served(address, tmp_path) as guest:
        ready = await guest.ready(timeout_s=60)
        assert (ready.desktop_ready, ready.generation) == (True, "3")
        assert await guest.get_text("/platform") == "Linux"
        assert await guest.screen_size() == (1920, 1080)
        await guest.upload(NOTE, b"")
        await guest.open_file(NOTE, timeout_s=60)
        width, height = decode(await guest.screenshot()).size
        actions: list[dict[str, Any]] = [{"op": "click", "x": width // 2, "y": height // 2}]
        actions += [{"op": "type", "text": TEXT}, {"op": "key", "keys": ["ctrl", "s"]}]
        done = await guest.step(1, actions, timeout_s=100)
        assert [result.ok for result in done.observation.results] == [True] * 3
        assert done.observation.frame.screen == (1920, 1080)
        final = await guest.final(1, wait_s=20)
        assert final.observation.seq == 1
        assert (await guest.file(NOTE)).decode().rstrip("\n") == TEXT
        assert (await guest.execute(["sh", "-c", "exit 7"])).returncode == 7
        with pytest.raises(GuestRefused) as caught:
            await guest.file("/no/such/file")
        assert caught.value.status == 404
        for path in ("/v1/identity", "/anything"):  # only what OSWorld has is passed on
            with pytest.raises(GuestRefused) as caught:
                await guest.post_json(path, {})
            assert caught.value.status in (404, 501)


@asynccontextmanager
async def stand_in(folder: Path, answers: dict[str, ServedResponse]) -> AsyncIterator[UnixAddress]:
    """A server that answers as it is told, whatever it is asked."""

    async def answer(request: HttpRequest) -> ServedResponse:
        return answers[request.path]

    server = UnixServer(answer)
    await server.listen(folder / "server.sock")
    try:
        yield UnixAddress(folder / "server.sock")
    finally:
        await server.close()


@pytest.mark.parametrize("picture", [b"", b"GIF89a", b"\x89PNG\r\n\x1a\n" + b"x" * 100])
async def test_what_is_no_picture_is_no_screen(tmp_path: Path, picture: bytes) -> None:
    """The guest decides what it sends; it ends as an error of its own, not of ours."""
    answers = {"/screenshot": ServedResponse(200, "image/png", (picture,))}
    async with stand_in(tmp_path, answers) as address, served(address, tmp_path) as guest:
        with pytest.raises(GuestRefused) as caught:
            await guest.observe()
    assert (caught.value.status, caught.value.code) == (503, "not_ready")


async def test_an_answer_without_end_is_cut_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However large a file is, the host takes so much of it and no more."""
    monkeypatch.setattr(adapter, "MAX_ANSWER_BYTES", 1000)
    answers = {"/file": ServedResponse(200, "application/octet-stream", (bytes(1001),))}
    async with stand_in(tmp_path, answers) as address, served(address, tmp_path) as guest:
        with pytest.raises(GuestRefused) as caught:
            await guest.file("/dev/zero")
    assert (caught.value.status, caught.value.code) == (502, "answer_too_large")


async def test_a_server_that_is_not_there_yet_is_not_ready(tmp_path: Path) -> None:
    """While the guest boots, nobody listens."""
    async with served(UnixAddress(tmp_path / "nobody.sock"), tmp_path) as guest:
        with pytest.raises(GuestRefused) as caught:
            await guest.ready(timeout_s=1)
        assert caught.value.code == "not_ready"
        assert (await guest.health()).desktop_ready is False
