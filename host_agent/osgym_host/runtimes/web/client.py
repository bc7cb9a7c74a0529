"""Host agent's side of the proxy: starts its process, restarts it, and hands it replicas' sockets."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import socket
import subprocess
from collections.abc import Sequence
from typing import Any

from osgym_host.runtimes.base import Egress, RuntimeFault, RuntimeUnsupported
from osgym_host.runtimes.own_process import Channel, start_process
from osgym_host.runtimes.web.options import ProxyOptions, WebMode
from osgym_host.runtimes.web.proxy_setup import ProxySetup, proxy_setup

_log = logging.getLogger(__name__)

_START_S = 60.0
"""Deadline of the start, which may read a large archive."""
_ANSWER_S = 10.0
_END_S = 5.0
_RESTART_S = 1.0
_MOST_RESTART_S = 30.0
_MODULE = "osgym_host.runtimes.web.process"


class ProxyFailed(RuntimeFault):
    """Failure of the proxy to do what it was asked."""


class ReplicaProxy:
    """Proxy of one instance. When its process dies, a new one takes over its replicas."""

    def __init__(self, options: ProxyOptions) -> None:
        self._options = options
        self._process: subprocess.Popen[bytes] | None = None
        self._channel: Channel | None = None
        self._listeners: dict[str, socket.socket] = {}
        self._restarting: asyncio.Task[None] | None = None
        self._stopped = True
        self.note = ""

    @property
    def egress(self) -> frozenset[Egress]:
        if self._options.mode is WebMode.OFF:
            return frozenset({Egress.NONE, self._options.egress})
        return frozenset({self._options.egress})

    def serves(self, egress: Egress) -> bool:
        return egress is not Egress.NONE or self._options.mode is not WebMode.OFF

    def setup(self) -> ProxySetup:
        """Return variables and files that make a replica's programs use the proxy."""
        authority = self._options.authority
        return proxy_setup(None if authority is None else authority.certificate)

    @property
    def pid(self) -> int:
        """PID of the process; 0 while there is none."""
        return 0 if self._process is None else self._process.pid

    async def start(self) -> None:
        """Start the process. Idempotent.

        Raises:
            RuntimeUnsupported: The options cannot be carried out; the message says why.
            ProxyFailed: It did not start.
        """
        if self._stopped:
            self._stopped = False
            try:
                await self._launch()
            except BaseException:
                self._stopped = True
                raise

    async def stop(self) -> None:
        """End the process and every connection. Idempotent."""
        self._stopped = True
        if self._restarting is not None:
            self._restarting.cancel()
            await asyncio.gather(self._restarting, return_exceptions=True)
            self._restarting = None
        for listener in self._listeners.values():
            listener.close()
        self._listeners.clear()
        await self._bury()

    async def open(self, key: str, listener: socket.socket) -> None:
        """Serve a replica from now on.

        Args:
            listener: Socket that listens in the replica's network; the proxy closes it.

        Raises:
            ProxyFailed: The proxy does not serve it; the replica is unchanged.
        """
        self._listeners[key] = listener
        if self._channel is None and not self._stopped:
            return  # it starts anew, and gets all there are
        try:
            await self._request({"op": "open", "key": key}, [listener.fileno()])
        except ProxyFailed:
            self._listeners.pop(key, None)
            listener.close()
            raise

    async def close(self, key: str) -> None:
        """End every connection of a replica; where that fails, of all. Idempotent."""
        listener = self._listeners.pop(key, None)
        if listener is None:
            return
        listener.close()
        if self._channel is None:
            return
        try:
            await self._request({"op": "close", "key": key})
        except ProxyFailed as exc:
            _log.error(
                "the proxy is restarted, since it keeps connections of a replica that has ended: %s", exc
            )
            if self._process is not None:
                self._process.kill()

    async def connections(self) -> dict[str, int]:
        """Return the number of connections of each replica.

        Raises:
            ProxyFailed: The proxy does not answer.
        """
        answer = await self._request({"op": "stats"})
        found: dict[str, int] = answer["connections"]
        return found

    async def _launch(self) -> None:
        try:
            # Not by the event loop's thread: others are served, when this starts again.
            process, ours = await asyncio.to_thread(start_process, _MODULE, stdin=subprocess.PIPE)
        except OSError as exc:
            raise ProxyFailed(f"the proxy of replicas cannot be started: {exc}") from exc
        self._process = process
        hello: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        channel = Channel(ours, lambda message: _told(hello, message))
        channel.lost.add_done_callback(lambda _: _told(hello, {"event": "lost"}))
        try:
            await self._greet(process, hello)
        except BaseException:
            channel.close()
            await self._bury()
            raise
        self._channel = channel
        channel.lost.add_done_callback(lambda _: self._lost(channel))
        self.note = hello.result()["note"]
        if self.note:
            _log.info("%s", self.note)

    async def _greet(self, process: subprocess.Popen[bytes], hello: asyncio.Future[dict[str, Any]]) -> None:
        """Send the options to a fresh process, and wait until it serves.

        Raises:
            RuntimeUnsupported: It cannot carry them out.
            ProxyFailed: It does not answer in time.
        """
        try:
            async with asyncio.timeout(_START_S):
                await asyncio.to_thread(_say, process, self._options.to_json().encode())
                said = await hello
        except TimeoutError as exc:
            raise ProxyFailed(f"the proxy of replicas did not start within {_START_S:g} s") from exc
        if said["event"] != "serving":
            raise RuntimeUnsupported(
                f"the proxy of replicas cannot start: {said.get('error', 'it ended')}.",
                remedy="Check the settings egress, web and web_archive.",
            )

    async def _request(self, fields: dict[str, Any], fds: Sequence[int] = ()) -> dict[str, Any]:
        if self._channel is None:
            raise ProxyFailed("the proxy of replicas is not running")
        try:
            answer, _ = await self._channel.request(fields, fds, timeout_s=_ANSWER_S)
        except OSError as exc:
            raise ProxyFailed(f"the proxy of replicas does not answer {fields['op']}: {exc}") from exc
        if not answer["ok"]:
            raise ProxyFailed(f"the proxy of replicas: {answer['error']}")
        return answer

    def _lost(self, channel: Channel) -> None:
        if self._channel is not channel:  # we have closed it
            return
        self._channel = None
        if not self._stopped and (self._restarting is None or self._restarting.done()):
            _log.error("the proxy of replicas ended and is being restarted")
            self._restarting = asyncio.get_running_loop().create_task(self._restart())

    async def _restart(self) -> None:
        wait_s = _RESTART_S
        while True:
            await self._bury()
            await asyncio.sleep(wait_s)
            try:
                await self._launch()
                for key, listener in tuple(self._listeners.items()):
                    if self._listeners.get(key) is listener:  # its replica may have ended meanwhile
                        await self._request({"op": "open", "key": key}, [listener.fileno()])
                return
            except (RuntimeFault, OSError) as exc:
                wait_s = min(2 * wait_s, _MOST_RESTART_S)
                _log.error("the proxy of replicas does not start and is tried again in %g s: %s", wait_s, exc)

    async def _bury(self) -> None:
        channel, self._channel = self._channel, None
        if channel is not None:
            channel.close()
        process, self._process = self._process, None
        if process is not None:
            await asyncio.shield(asyncio.to_thread(_wait, process))


def _told(future: asyncio.Future[dict[str, Any]], message: dict[str, Any]) -> None:
    if not future.done():
        future.set_result(message)


def _say(process: subprocess.Popen[bytes], text: bytes) -> None:
    assert process.stdin is not None
    with contextlib.suppress(BrokenPipeError), process.stdin as pipe:
        pipe.write(text)


def _wait(process: subprocess.Popen[bytes]) -> None:
    if process.stdin is not None:
        with contextlib.suppress(OSError):
            process.stdin.close()
    try:
        process.wait(_END_S)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGKILL)
        process.wait()
