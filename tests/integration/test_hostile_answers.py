"""However a guest's answer is shaped, reading it never keeps the event loop for long, and deadlines fire.

The guest is a process of its own, over a unix socket (as on `local`) and over TCP (as on `qemu`). Measured is
the processor time of each turn of the loop: other work on the machine does not count.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import signal
import socket
import subprocess
import sys
import time
from asyncio import events
from collections.abc import Iterator
from pathlib import Path

import pytest
from benchmarks import hostile_answers

from osgym_host.addresses import GuestAddress, TcpAddress, UnixAddress
from osgym_host.cli.serve import give_back_large_blocks
from osgym_host.episodes.replica_lease import ReplicaLease
from osgym_host.guest_client import GuestClient, GuestError

MAX_TURN_MS = 20.0
MAX_GROWTH_MIB = 20.0
CALL_S = 3.0


class HostileGuest:
    """A hostile guest agent in a process of its own."""

    def __init__(self, address: GuestAddress, shape_file: Path) -> None:
        self.address = address
        self._shape_file = shape_file

    def answers(self, shape: str) -> None:
        """What it answers from now on."""
        self._shape_file.write_text(shape)


@pytest.fixture(params=["unix", "tcp"])
def guest(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[HostileGuest]:
    address: GuestAddress
    if request.param == "unix":
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(str(tmp_path / "agent.sock"))
        address = UnixAddress(tmp_path / "agent.sock")
    else:
        listener = socket.socket()
        listener.bind(("127.0.0.1", 0))
        address = TcpAddress(*listener.getsockname())
    listener.listen()
    shape_file = tmp_path / "shape"
    shape_file.write_text("good")
    process = subprocess.Popen(
        [sys.executable, hostile_answers.__file__, str(shape_file), str(listener.fileno())],
        pass_fds=(listener.fileno(),),
    )
    listener.close()
    try:
        yield HostileGuest(address, shape_file)
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait(10)


@pytest.fixture
def turns_ms(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Processor time of every callback that the loop ran."""
    taken: list[float] = []
    run = events.Handle._run

    def timed(self: events.Handle) -> None:
        began = time.thread_time()
        run(self)
        taken.append((time.thread_time() - began) * 1000)

    monkeypatch.setattr(events.Handle, "_run", timed)
    return taken


@pytest.fixture(autouse=True, scope="module")
def memory_as_in_the_host_agent() -> None:
    """`osgym host serve` does it first of all."""
    give_back_large_blocks()


def _resident_mib() -> float:
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / (1 << 20)


@pytest.mark.parametrize("shape", [s for s in hostile_answers.STEP_SHAPES if s != "good"])
async def test_no_answer_to_a_step_keeps_the_loop(
    guest: HostileGuest, turns_ms: list[float], shape: str
) -> None:
    """Whatever it is, it ends as an image or a typed error within the deadline."""
    async with GuestClient(guest.address) as client:
        seq = 1
        await client.step(seq, [], timeout_s=30)
        before = _resident_mib()
        guest.answers(shape)
        await asyncio.sleep(0)
        turns_ms.clear()
        began = time.monotonic()
        with contextlib.suppress(GuestError):
            await client.step(seq, [], timeout_s=CALL_S)
        assert time.monotonic() - began < CALL_S + 5
        await asyncio.sleep(0)  # this turn counts, too
        assert max(turns_ms) < MAX_TURN_MS
        guest.answers("good")
        assert len((await client.step(seq, [], timeout_s=30)).image) == len(hostile_answers.GOOD)
    assert _resident_mib() - before < MAX_GROWTH_MIB


@pytest.mark.parametrize("shape", list(hostile_answers.TEXT_SHAPES))
async def test_no_answer_to_a_command_keeps_the_loop(
    guest: HostileGuest, turns_ms: list[float], shape: str
) -> None:
    """What may be large is parsed in pieces."""
    async with GuestClient(guest.address) as client:
        await client.execute("true", timeout_s=30)
        before = _resident_mib()
        guest.answers(shape)
        await asyncio.sleep(0)
        turns_ms.clear()
        with contextlib.suppress(GuestError):
            done = await client.execute("true", timeout_s=CALL_S)
            assert shape in ("allowed output", "wide output", "output of escapes")
            assert len(done.output) in (1_000_000, 5_242_001, 340_000)
            del done
        await asyncio.sleep(0)
        assert max(turns_ms) < MAX_TURN_MS
    assert _resident_mib() - before < MAX_GROWTH_MIB


@pytest.mark.parametrize("shape", ["chunks of 1 KiB", "endless", "huge image"])
async def test_what_was_read_is_given_back_at_once(guest: HostileGuest, shape: str) -> None:
    """Not when the collector of cycles happens to run: that may be in minutes."""
    async with GuestClient(guest.address) as client:
        lease = ReplicaLease("r", 1)
        await client.step(1, [], timeout_s=30)
        guest.answers(shape)
        before = _resident_mib()
        gc.disable()
        try:
            for _ in range(2):
                with contextlib.suppress(GuestError):
                    await lease.attempt(client.step(1, [], timeout_s=CALL_S))
            after = int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")  # noqa: ASYNC240 - the only task
            assert after / (1 << 20) - before < MAX_GROWTH_MIB
        finally:
            gc.enable()


async def test_many_hostile_guests_delay_nobody(guest: HostileGuest, turns_ms: list[float]) -> None:
    """Eight calls at once that get all that a command may answer: others have their turn in between."""
    guest.answers("allowed output")
    gaps: list[float] = []

    async def tick() -> None:
        last = time.thread_time()
        while True:
            await asyncio.sleep(0)
            now = time.thread_time()
            gaps.append((now - last) * 1000)
            last = now

    async with GuestClient(guest.address) as client:
        ticking = asyncio.create_task(tick())
        results = await asyncio.gather(*(client.execute("x", timeout_s=60) for _ in range(8)))
        ticking.cancel()
    assert {len(result.output) for result in results} == {1_000_000}
    assert max(gaps) < MAX_TURN_MS
    assert sorted(gaps)[int(len(gaps) * 0.99)] < MAX_TURN_MS / 4
