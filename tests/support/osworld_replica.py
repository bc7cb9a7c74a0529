"""A real replica for tests of the guest's OSWorld endpoints, reached over loopback TCP."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path

import pytest

from osgym_host.addresses import UnixAddress
from osgym_host.guest_client import GuestClient
from osgym_host.images.errors import ImageNotFound
from osgym_host.images.store import Image, ImageStore, default_data_dir
from osgym_host.runtimes.base import ReplicaSpec
from osgym_host.runtimes.local.runtime import LocalRuntime

CHUNK = 64 * 1024


def image_or_skip(flavor: str) -> Image:
    """The newest image of a flavor; the test is skipped where none has been baked."""
    try:
        return ImageStore(default_data_dir()).resolve(flavor)
    except ImageNotFound:
        pytest.skip(f"missing: golden image {flavor}: bake one with `osgym image build --flavor {flavor}`")


class Relay:
    """Loopback TCP in front of a unix socket, for clients that speak TCP only; threads, so that a
    blocking client can run in the test's own."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._thread = threading.Thread(target=self._accept)
        self._thread.start()

    def _accept(self) -> None:
        pumps: list[threading.Thread] = []
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                break
            guest = socket.socket(socket.AF_UNIX)
            guest.connect(str(self._path))
            for source, sink in ((client, guest), (guest, client)):
                pump = threading.Thread(target=self._pump, args=(source, sink))
                pump.start()
                pumps.append(pump)
        for pump in pumps:
            pump.join(10)

    @staticmethod
    def _pump(source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(CHUNK):
                sink.sendall(data)
        for end in (source, sink):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
        if source.family == socket.AF_UNIX:
            source.close()
            sink.close()

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(15)


@asynccontextmanager
async def replica(image: Image, folder: Path) -> AsyncIterator[UnixAddress]:
    """One replica with its desktop drawn; gone afterwards."""
    runtime = LocalRuntime(folder, "osworld")
    await runtime.start()
    try:
        made = await runtime.create(ReplicaSpec("osworld", 1, image))
        assert isinstance(made.guest, UnixAddress)
        async with GuestClient(made.guest) as guest, asyncio.timeout(60):
            await guest.ready(timeout_s=50)
        yield made.guest
    finally:
        await runtime.stop()


@contextmanager
def served_replica(flavor: str, folder: Path) -> Iterator[int]:
    """A replica that lives beside a blocking test; the value is the TCP port of its guest agent."""
    image = image_or_skip(flavor)
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    manager = replica(image, folder)
    try:
        address = asyncio.run_coroutine_threadsafe(manager.__aenter__(), loop).result(90)
        relay = Relay(address.path)
        try:
            yield relay.port
        finally:
            relay.close()
            asyncio.run_coroutine_threadsafe(manager.__aexit__(None, None, None), loop).result(60)
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)
        loop.close()
