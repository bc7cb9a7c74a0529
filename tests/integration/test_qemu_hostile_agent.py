"""A virtual machine that answers its host as one that means harm, in place of a guest agent."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.support.runtime_kits import QemuKit, contract_spec

from osgym_host.addresses import EnclosedAddress, GuestAddress, TcpAddress
from osgym_host.guest_client import GuestClient, GuestError, GuestTimeout
from osgym_host.runtimes.base import ReplicaSpec
from osgym_qemu.cloning.replica import QemuReplica
from osgym_qemu.snapshots import Snapshot

EVIL_PORT = 5001
STARTED_S = 40.0
TIMEOUT_S = 2.0
GAP_S = 0.25
"""The event loop may stand still for so long at most; a loaded machine needs some of it itself."""

# Answers at a port of its own, which the host is led to: each path has its own way to misbehave.
_EVIL = r"""
import socket, threading, time
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"

def forever(end, head, piece):
    end.sendall(head)
    block = piece * (65536 // len(piece))
    while True:
        end.sendall(block)

def serve(end):
    try:
        path = end.recv(65536).split(b" ")[1]
        if path == b"/v1/health":
            end.sendall(HEAD + b"Content-Length: 2\r\n\r\n{}")
        elif path == b"/v1/observe":
            forever(end, CHUNKED, b"1\r\nx\r\n")
        elif path == b"/screenshot":
            forever(end, HEAD + b"Content-Length: 60000000\r\n\r\n", b"x")
        elif path == b"/file":
            forever(end, HEAD + b"Connection: close\r\n\r\n", b"[")
        elif path == b"/accessibility":
            forever(end, b"HTTP/1.1 200 OK\r\n", b"A: b\r\n")
        else:
            for byte in HEAD + b"Content-Length: 1000\r\n\r\n" + b"x" * 1000:
                end.sendall(bytes([byte]))
                time.sleep(0.02)
    except OSError:
        pass
    finally:
        end.close()

listener = socket.create_server(("0.0.0.0", 5001), backlog=64)
while True:
    threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()
"""


@contextlib.asynccontextmanager
async def measured_gaps() -> AsyncIterator[list[float]]:
    """How long the event loop stood still, each time."""
    gaps: list[float] = []

    async def tick() -> None:
        while True:
            began = time.monotonic()
            await asyncio.sleep(0.001)
            gaps.append(time.monotonic() - began)

    ticking = asyncio.create_task(tick())
    try:
        yield gaps
    finally:
        ticking.cancel()
        await asyncio.gather(ticking, return_exceptions=True)


async def hostile_agent(replica: QemuReplica) -> GuestAddress:
    """Start the hostile agent in a machine; return where the host reaches it, as it reaches the real one."""
    async with GuestClient(replica.guest, token=replica.guest_token) as guest:
        await guest.upload("/tmp/evil.py", _EVIL.encode())
        await guest.launch(["python3", "-I", "/tmp/evil.py"])
    forward = f"hostfwd_add tcp:127.0.0.1:{EVIL_PORT}-:{EVIL_PORT}"
    assert not await replica.vm.machine.qmp.hmp(forward)
    assert isinstance(replica.guest, EnclosedAddress | TcpAddress)
    address = dataclasses.replace(replica.guest, port=EVIL_PORT)
    end = time.monotonic() + STARTED_S
    while True:
        with contextlib.suppress(GuestError):
            async with GuestClient(address) as guest:
                await guest.get_text("/v1/health", timeout_s=2)
                return address
        assert time.monotonic() < end, "the hostile agent does not answer"
        await asyncio.sleep(0.2)


@pytest.mark.desktop
async def test_whatever_a_machines_agent_answers_delays_nobody(
    small_snapshot: Snapshot, tmp_path: Path
) -> None:
    """Bytes without end in every shape: deadlines fire, the host goes on, a neighbour's steps do too."""
    kit = QemuKit(small_snapshot, parked=0)
    runtime = kit.make(tmp_path)
    await runtime.start()
    try:
        evil = await runtime.create(contract_spec(kit))
        well = await runtime.create(ReplicaSpec("well", 9, small_snapshot, kit.screen))
        assert isinstance(evil, QemuReplica)
        address = await hostile_agent(evil)
        async with (
            GuestClient(address) as hostile,
            GuestClient(well.guest, token=well.guest_token) as neighbour,
        ):
            calls = {
                "chunks of one byte": lambda: hostile.observe(timeout_s=TIMEOUT_S),
                "a long body": lambda: hostile.screenshot(timeout_s=TIMEOUT_S),
                "to the end": lambda: hostile.file("/x", timeout_s=TIMEOUT_S),
                "headers": lambda: hostile.accessibility(timeout_s=TIMEOUT_S),
                "a byte at a time": lambda: hostile.get_text("/platform", timeout_s=TIMEOUT_S),
            }
            for name, call in calls.items():
                async with measured_gaps() as gaps:
                    began = time.monotonic()
                    attack = asyncio.ensure_future(call())
                    seen = [await neighbour.observe(timeout_s=20) for _ in range(3)]
                    with contextlib.suppress(GuestError):
                        await attack
                    took_s = time.monotonic() - began
                print(f"\n  {name}: {took_s:.2f} s, longest gap {1000 * max(gaps):.0f} ms")
                assert len(seen) == 3
                assert took_s < 3 * TIMEOUT_S, name
                assert max(gaps) < GAP_S, name
            with pytest.raises(GuestTimeout):
                await hostile.get_text("/platform", timeout_s=0.3)
        assert evil.exit_info is None
    finally:
        await runtime.stop()
