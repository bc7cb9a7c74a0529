"""Identity of a guest in a virtual machine: every clone wakes up with the identity of its template.

The host sends each clone its own (`POST /v1/identity`). `osgym-identity`, a resident root process behind a
unix socket (`native/identity.c`), applies it; token and generation are the agent's own. A file in the
session's memory folder keeps them over a restart of the agent.

Each clone does this once, with cold code: so nothing is awaited, connected to or opened on the way.
"""

from __future__ import annotations

import base64
import binascii
import errno
import json
import mmap
import os
import socket
import struct
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from osgym_guest.http import HttpError, bad, to_json
from osgym_protocol.codes import GuestErrorCode

SEED_BYTES = 64
MAX_GENERATION = 2**53
MAX_TOKEN_CHARS = 256
HELPER_TIMEOUT_S = 5
FILE_BYTES = 1024
"""Size of the file, which exceeds the text of any identity."""
PARTS = ("seed", "hostname", "machine_id", "boot_id", "time")
"""Parts that the helper applies, in the order of its answer."""

_MAGIC = b"OSGYMID1"
_REQUEST = struct.Struct("<8sq64s40s40s64s")
_ANSWER = struct.Struct("<8s5i")
_TIMEOUT = struct.pack("@ll", HELPER_TIMEOUT_S, 0)  # struct timeval
_GO = b"OSGYMGO1"
_NOT_ASKED, _ON_GO = -1, -2
_REFUSED = [errno.EINVAL] * len(PARTS)
_FIELDS = ("generation", "token", "hostname", "machine_id", "boot_id", "seed", "time_ns")


@dataclass(frozen=True)
class GuestIdentity:
    """Identity that the host sends. Every part but the generation may be left out (empty, 0).

    An identity without a token is that of a template that is about to be frozen: it has nothing that opens a
    clone.
    """

    generation: int
    token: str
    hostname: str
    machine_id: str
    boot_id: str
    seed: bytes
    time_ns: int

    def packet(self) -> bytes:
        """Return the request to the helper, which checks the texts."""
        texts = (self.hostname.encode(), self.machine_id.encode(), self.boot_id.encode())
        return _REQUEST.pack(_MAGIC, self.time_ns, *texts, self.seed)


def parse_identity(body: Mapping[str, Any]) -> GuestIdentity:
    """Parse the body of the request.

    Raises:
        HttpError: 400 when a field is unknown, missing or of the wrong kind.
    """
    for key in body:
        if key not in _FIELDS:
            raise bad(f"an identity has no field {key!r}")
    generation, time_ns = body.get("generation"), body.get("time_ns", 0)
    if type(generation) is not int or not 0 < generation <= MAX_GENERATION:
        raise bad("generation must be a whole number from 1")
    if type(time_ns) is not int or not 0 <= time_ns < 2**63:
        raise bad("time_ns must be a whole number of nanoseconds since 1970")
    token = body.get("token")
    printable = isinstance(token, str) and token.isascii() and token.isprintable() and " " not in token
    if not isinstance(token, str) or (token and not printable) or len(token) > MAX_TOKEN_CHARS:
        raise bad(f"token must be at most {MAX_TOKEN_CHARS} visible ASCII characters")
    try:
        seed = base64.b64decode(body.get("seed", ""), validate=True)
    except (binascii.Error, TypeError, ValueError) as exc:
        raise bad("seed must be base64") from exc
    if len(seed) not in (0, SEED_BYTES):
        raise bad(f"seed must be {SEED_BYTES} bytes")
    return GuestIdentity(
        generation=generation,
        token=token,
        hostname=_text(body, "hostname", 63),
        machine_id=_text(body, "machine_id", 32),
        boot_id=_text(body, "boot_id", 36),
        seed=seed,
        time_ns=time_ns,
    )


def _text(body: Mapping[str, Any], name: str, most: int) -> str:
    value = body.get(name, "")
    if not isinstance(value, str) or not value.isascii() or len(value) > most or "\0" in value:
        raise bad(f"{name} must be at most {most} ASCII characters")
    return value


@dataclass(frozen=True)
class AssumedIdentity:
    """Identity that was applied last.

    Attributes:
        own_clock: The clock was set to another time than the host's. Later identities leave it alone, so that
            the child of a fork continues with its parent's time.
    """

    generation: int
    token: str
    applied: Mapping[str, bool]
    own_clock: bool = False


class Identities:
    """Applies identities one after the other.

    Args:
        helper: Socket of `osgym-identity`.
        file: File in memory (tmpfs) that keeps the last identity over a restart of the agent.
    """

    def __init__(self, helper: Path, file: Path | None) -> None:
        self._helper = helper
        self._socket: socket.socket | None = None
        self._kept = None if file is None else _map(file)
        self._settled = True
        self.last = _read(self._kept)

    def take(self, body: Mapping[str, Any]) -> AssumedIdentity:
        """Apply the identity in the body of a request.

        Raises:
            HttpError: As `parse_identity` and `assume` document.
        """
        return self.assume(parse_identity(body))

    def assume(self, identity: GuestIdentity) -> AssumedIdentity:
        """Apply an identity, up to `settle`.

        The same identity again changes nothing. Blocks while the helper works.

        A late request of an older identity cannot come this far: its token is no longer accepted. Numbers are
        not compared, since a checkpoint may continue at a host that counts lower.

        Raises:
            HttpError: 409 ``stale_identity`` when this generation was given another token already, 400 for
                invalid texts, 503 ``no_identity_helper`` when the helper does not answer.
        """
        last = self.last
        if last is not None and identity.generation == last.generation:
            if identity.token == last.token:
                return last
            details = {"generation": last.generation}
            raise HttpError(409, GuestErrorCode.STALE_IDENTITY, "this generation has another token", details)
        own_clock = last is not None and last.own_clock
        errors = self._ask((replace(identity, time_ns=0) if own_clock else identity).packet())
        if errors == _REFUSED:  # the request as a whole
            raise bad("hostname, machine_id, boot_id or time_ns is malformed")
        applied = {
            name: error in (0, _ON_GO)
            for name, error in zip(PARTS, errors, strict=True)
            if error != _NOT_ASKED
        }
        self.last = AssumedIdentity(
            identity.generation, identity.token, {**applied, "token": True}, own_clock
        )
        self._settled = _ON_GO not in errors
        return self.last

    def set_clock(self, time_ns: int) -> None:
        """Set the machine's clock to another time than its host's, for this machine and its children.

        Raises:
            HttpError: 503 when the helper does not answer or lacks the permission.
        """
        packet = GuestIdentity(0, "", "", "", "", b"", time_ns).packet()
        for errors in (self._ask(packet), self._ask(_GO)):
            if errors[PARTS.index("time")] not in (0, _ON_GO):
                raise HttpError(503, GuestErrorCode.NO_IDENTITY_HELPER, "the clock could not be set")
        if self.last is not None:
            self.last = replace(self.last, own_clock=True)
            _write(self._kept, self.last)

    def settle(self) -> None:
        """Apply the slow parts, host name and clock, and save the identity.

        Call it between the answer to the host and the next request: host name and clock wake up journal and
        init, which would run before the answer is out.

        Raises:
            HttpError: 503 when the helper no longer answers. The identity is forgotten.
        """
        if self.last is not None:
            _write(self._kept, self.last)
        if self._settled:
            return
        self._settled = True
        try:
            if any(error > 0 for error in self._ask(_GO)):
                raise HttpError(503, GuestErrorCode.NO_IDENTITY_HELPER, "host name or clock could not be set")
        except HttpError:
            _write(self._kept, None)
            raise

    def close(self) -> None:
        """Close the connection to the helper, which opens again when it is needed."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _ask(self, packet: bytes) -> list[int]:
        """Return the helper's result for each part. Raises HttpError: 503 when it does not answer."""
        try:
            try:
                raw = self._exchange(packet)
            except ConnectionError:  # it was started anew since it was asked last
                self.close()
                raw = self._exchange(packet)
            magic, *errors = _ANSWER.unpack(raw)
        except (OSError, struct.error) as exc:
            self.close()
            message = f"{self._helper}: {type(exc).__name__}: {exc}"
            raise HttpError(503, GuestErrorCode.NO_IDENTITY_HELPER, message) from exc
        if magic != _MAGIC:
            raise HttpError(
                503, GuestErrorCode.NO_IDENTITY_HELPER, f"{self._helper} is not the expected helper"
            )
        return errors

    def _exchange(self, packet: bytes) -> bytes:
        """Send a packet over the connection, which stays open so that a clone finds it open.

        Raises:
            OSError: The helper does not run, or did not answer in time.
        """
        if self._socket is None:
            self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            for option in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
                self._socket.setsockopt(socket.SOL_SOCKET, option, _TIMEOUT)
            self._socket.connect(str(self._helper))
        self._socket.send(packet)
        answer = self._socket.recv(256)
        if not answer:
            raise ConnectionResetError("the helper closed the connection")
        return answer


def _map(file: Path) -> mmap.mmap:
    """Map the file into memory, so that a change takes no system call and survives the agent."""
    fd = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        os.ftruncate(fd, FILE_BYTES)
        kept = mmap.mmap(fd, FILE_BYTES)
    finally:
        os.close(fd)
    kept[0] = kept[0]  # the page is there, and writable, before a clone is made
    return kept


def _read(kept: mmap.mmap | None) -> AssumedIdentity | None:
    """Return the identity of before the agent's restart; None when it cannot be read."""
    try:
        last = json.loads(kept[:].rstrip(b"\0")) if kept is not None else None
        return (
            AssumedIdentity(
                int(last["generation"]), str(last["token"]), dict(last["applied"]), last["own_clock"] is True
            )
            if last
            else None
        )
    except (ValueError, KeyError, TypeError):
        return None


def _write(kept: mmap.mmap | None, taken: AssumedIdentity | None) -> None:
    """Save an identity for the agent's own user only, or clear the file.

    A new file and its rename would be a tenth of all that an emulated clone computes until it answers.
    """
    if kept is not None:
        last = {}
        if taken is not None:
            last = {
                "generation": taken.generation,
                "token": taken.token,
                "applied": dict(taken.applied),
                "own_clock": taken.own_clock,
            }
        kept[:] = to_json(last).ljust(FILE_BYTES, b"\0")
