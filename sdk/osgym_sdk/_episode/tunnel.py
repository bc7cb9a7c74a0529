"""Ports of a desktop at ports of this machine: a connection is one request to the host, both ways at once."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import h11

from osgym_protocol.limits import MAX_TUNNELS
from osgym_sdk._exceptions import ConfigError, HostUnreachable, OSGymError
from osgym_sdk._fleet.session import EpisodeSession

_LOG = logging.getLogger("osgym.sdk")
_PIECE_BYTES = 64 * 1024
_LOOPBACK = "127.0.0.1"
_ANSWER_S = 45.0
_MAX_REFUSAL_BYTES = 64 * 1024

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Exposed:
    """Local address of a desktop's port: ``host``, ``port``, both by iteration, or ``url``."""

    def __init__(self, host: str, port: int) -> None:
        self.host = host
        self.port = port

    @property
    def url(self) -> str:
        """``http://127.0.0.1:PORT``."""
        return f"http://{self.host}:{self.port}"

    def __iter__(self) -> Iterator[str | int]:
        return iter((self.host, self.port))


class Exposure(Exposed):
    """A port of this machine's loopback that leads to one of a desktop; made by :meth:`AsyncEpisode.expose`.

    Attributes:
        host, port: where to connect.
        failure: why the last connection could not be made; None after one that could. ``PortClosed``: nobody
            listens in the desktop.
    """

    def __init__(self, session: EpisodeSession, path: str) -> None:
        super().__init__(_LOOPBACK, 0)
        self.failure: OSGymError | None = None
        self._session = session
        self._path = path
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()

    @classmethod
    async def begin(cls, session: EpisodeSession, path: str, local_port: int) -> Exposure:
        """Listen.

        Raises:
            ConfigError: the port is taken, or the client's connections are not plain ones.
        """
        session.placement.host.link.plain_connection(session.lease)
        exposure = cls(session, path)
        try:
            server = await asyncio.start_server(exposure._accept, _LOOPBACK, local_port, limit=_PIECE_BYTES)
        except OSError as exc:
            raise ConfigError(f"cannot listen at port {local_port}: {exc.strerror}") from exc
        exposure._server = server
        exposure.port = server.sockets[0].getsockname()[1]
        return exposure

    async def aclose(self) -> None:
        """Stop listening and close all connections. Idempotent."""
        server, self._server = self._server, None
        if server is not None:
            server.close()
        for task in self._connections:
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        try:
            if len(self._connections) <= MAX_TUNNELS and self._session.lost is None:
                await self._pass_on((reader, writer))
        except OSGymError as exc:
            self.failure = exc
            _LOG.info("exposed port: %s", exc)
        except (OSError, h11.ProtocolError) as exc:  # one of the two sides broke: so does the other
            _LOG.debug("exposed port: %s", exc)
        except asyncio.CancelledError:
            pass  # by aclose; the server's own callback takes anything else for a fault
        finally:
            self._connections.discard(task)
            writer.close()

    async def _pass_on(self, local: Streams) -> None:
        async with _dialogue(self._session, self._path) as dialogue:
            self.failure = None
            up = asyncio.create_task(_up(local[0], dialogue))
            down = asyncio.create_task(_down(dialogue, local[1]))
            try:
                # The desktop's side has ended when `down` has; ours may end and still wait for answers.
                await asyncio.wait((down,))
                down.result()
            finally:
                for task in (up, down):
                    task.cancel()
                await asyncio.gather(up, down, return_exceptions=True)


class Dialogue:
    """A request whose body is still being sent while its answer is read."""

    def __init__(self, http: h11.Connection, streams: Streams) -> None:
        self._http = http
        self._reader, self._writer = streams

    async def send(self, data: bytes) -> None:
        """Send a piece; returns when there is room for the next."""
        self._writer.write(self._http.send(h11.Data(data=data)) or b"")
        await self._writer.drain()

    async def send_end(self) -> None:
        """Say that nothing more comes."""
        self._writer.write(self._http.send(h11.EndOfMessage()) or b"")
        await self._writer.drain()

    async def next_event(self) -> h11.Event:
        """Return what comes next of the answer.

        Raises:
            h11.ProtocolError, OSError: the connection broke.
        """
        while (event := self._http.next_event()) is h11.NEED_DATA:
            self._http.receive_data(await self._reader.read(_PIECE_BYTES))
        assert not isinstance(event, type)
        return event


@asynccontextmanager
async def _dialogue(session: EpisodeSession, path: str) -> AsyncIterator[Dialogue]:
    """Begin a request of an open end; the block has its answer's head.

    Raises:
        HostUnreachable: the connection cannot be made, or broke.
        OSGymError: the host refused.
    """
    link = session.placement.host.link
    target = link.plain_connection(session.lease)
    writer: asyncio.StreamWriter | None = None
    try:
        async with asyncio.timeout(_ANSWER_S):
            reader, writer = await asyncio.open_connection(
                target.host,
                target.port,
                ssl=target.tls,
                server_hostname=target.server_name,
                limit=_PIECE_BYTES,
            )
            http = h11.Connection(h11.CLIENT)
            dialogue = Dialogue(http, (reader, writer))
            headers = [*target.headers.items(), ("transfer-encoding", "chunked")]
            request = h11.Request(method="POST", target=target.path + path, headers=headers)
            writer.write(http.send(request) or b"")
            event = await dialogue.next_event()
            if not isinstance(event, h11.Response):
                raise HostUnreachable("the host closed the connection", host=link.url)
            if event.status_code >= 300:
                data = b""
                while isinstance(piece := await dialogue.next_event(), h11.Data):
                    data = (data + piece.data)[:_MAX_REFUSAL_BYTES]
                raise link.refused(event.status_code, data, session.episode_id)
        yield dialogue
    except TimeoutError as exc:
        if isinstance(exc, OSGymError):
            raise
        raise HostUnreachable(f"no answer within {_ANSWER_S:g} s", host=link.url) from exc
    finally:
        if writer is not None:
            writer.transport.abort()


async def _up(reader: asyncio.StreamReader, dialogue: Dialogue) -> None:
    with contextlib.suppress(OSError, h11.ProtocolError):  # the other direction tells
        while data := await reader.read(_PIECE_BYTES):
            await dialogue.send(data)
        await dialogue.send_end()


async def _down(dialogue: Dialogue, writer: asyncio.StreamWriter) -> None:
    while isinstance(event := await dialogue.next_event(), h11.Data):
        writer.write(event.data)
        await writer.drain()
