"""Requests to a host and their answers."""

from __future__ import annotations

import enum
import json
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar

from osgym_sdk._exceptions import ProtocolError
from osgym_sdk.wire import Message, Record

M = TypeVar("M", bound=Message)


class ConnectionKind(enum.Enum):
    """Which connections a call uses."""

    CONTROL = "control"
    LONG = "long"
    HEARTBEAT = "heartbeat"
    UPLOAD = "upload"
    """Files, which httpx sends piece by piece."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostCall:
    """A request and its deadlines. Calls are repeatable, so they are sent again while connections break."""

    method: str
    path: str
    timeout_s: float
    """Deadline of the whole call."""
    body: Message | None = None
    content: bytes | None = None
    """Bytes in the place of a body."""
    retry_s: float | None = None
    """Time for which a broken connection is tried again; ``Timeouts.retry_s`` by default."""
    kind: ConnectionKind = ConnectionKind.CONTROL
    lease: str | None = None
    """Sent in a header, for calls without a body."""
    episode_id: str | None = None
    """Episode that errors name."""
    record: bool = False
    """True: the answer is a record, not JSON."""


@dataclass(frozen=True, slots=True)
class HostAnswer:
    """Answer of a host. ``transfer_s`` is the duration of the last attempt."""

    host: str
    call: HostCall
    body: bytes
    transfer_s: float
    record: Record | None = None

    @property
    def blob(self) -> bytes:
        """The image of a record."""
        return bytes(self.record.blob) if self.record is not None else b""

    def message(self, kind: type[M]) -> M:
        """Return the JSON, or the meta of the record, as a message.

        Raises:
            ProtocolError: The answer is not a message of this type.
        """
        try:
            return kind.from_dict(json.loads(self.body) if self.record is None else self.record.meta)
        except ValueError as exc:
            raise ProtocolError(str(exc), host=self.host, episode_id=self.call.episode_id) from exc


@dataclass(frozen=True, slots=True)
class HostReply:
    """Reply of a host as it is, errors too. The names of ``headers`` are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True, slots=True)
class PlainConnection:
    """Address, TLS settings and headers for a connection to a host."""

    host: str
    port: int
    path: str
    tls: ssl.SSLContext | None
    server_name: str | None
    headers: Mapping[str, str]
