"""Identity of a clone: makes it another computer than the one it was cloned from.

A clone wakes up with its template's random state, names and clock. The first thing it hears is
`POST /v1/identity`; the guest agent has all of it changed by a helper that is root in the guest, and
acknowledges. Until then nothing else is let near the clone, and its agent serves nothing else.

What says that it is the host who calls: nobody else reaches a clone (`machine/namespace.py`). A template
drops its token before it is frozen (`give_up_token`), so its memory holds none that opens a clone. A
child of a branch point wakes up with its parent's, and a clone of a snapshot from before that with its
template's: these calls carry that token.
"""

from __future__ import annotations

import asyncio
import base64
import json
import secrets
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from osgym_host.addresses import GuestAddress
from osgym_host.errors import OsgymHostError
from osgym_host.guest_client.errors import GuestError
from osgym_host.guest_client.http import HttpClient, HttpResponse
from osgym_host.runtimes.base import HOSTNAME

SEED_BYTES = 64
MAX_ANSWER_BYTES = 64 * 1024
REQUIRED = frozenset({"seed", "machine_id", "hostname", "time", "token"})
"""Parts that a guest must have applied; a boot id is not always possible."""
_FIRST_TRY_S = 2.0
"""Deadline of the first attempt: TCP resends a packet that was lost during the resume after a second."""
_PAUSE_S = 0.02
_TEXT_MAX = 300


class IdentityRefused(OsgymHostError):
    """Refusal of a guest to take its new identity; the clone must not be used."""


@dataclass(frozen=True, slots=True)
class GuestIdentity:
    """Identity for a clone. The clock is read when it is sent.

    Attributes:
        token: Token that its guest agent demands from then on.
        seed: Random bytes for its kernel.
    """

    generation: int
    token: str = field(repr=False)
    hostname: str
    machine_id: str
    boot_id: str
    seed: bytes = field(repr=False)

    def body(self, time_ns: int) -> bytes:
        fields = {
            "generation": self.generation,
            "token": self.token,
            "hostname": self.hostname,
            "machine_id": self.machine_id,
            "boot_id": self.boot_id,
            "seed": base64.b64encode(self.seed).decode(),
            "time_ns": time_ns,
        }
        return json.dumps(fields).encode()


def new_identity(generation: int, token: str) -> GuestIdentity:
    """Return an identity that no other clone has. Only the host name, which is on the screen, is the same."""
    return GuestIdentity(
        generation=generation,
        token=token,
        hostname=HOSTNAME,
        machine_id=secrets.token_hex(16),
        boot_id=str(uuid.uuid4()),
        seed=secrets.token_bytes(SEED_BYTES),
    )


async def give_up_token(address: GuestAddress, token: str, generation: int, *, timeout_s: float) -> bool:
    """Make the agent of a template forget its token, and serve nothing but the next identity.

    Returns:
        False when the agent is of an older version, which cannot; it then keeps its token.

    Raises:
        GuestError: It did not answer.
        IdentityRefused: Its answer makes no sense.
    """
    client = HttpClient(address, token=token)
    body = json.dumps({"generation": generation, "token": ""}).encode()
    try:
        answer = await client.request(
            "POST", "/v1/identity", body, timeout_s=timeout_s, max_body=MAX_ANSWER_BYTES
        )
        if answer.status == 400:
            return False
        told = await client.request("GET", "/v1/health", timeout_s=timeout_s, max_body=MAX_ANSWER_BYTES)
    finally:
        client.close()
    if answer.status != 200 or told.status != 401:
        raise IdentityRefused(
            f"the guest still accepts the snapshot's token (status {answer.status}, then {told.status})"
        )
    return True


async def assign(
    address: GuestAddress, old_token: str | None, identity: GuestIdentity, *, timeout_s: float
) -> Mapping[str, Any]:
    """Send a guest its identity until it acknowledges.

    Args:
        old_token: Token that it demands for that; None where it demands none.

    Returns:
        Its answer (hostile, but checked for the right generation).

    Raises:
        IdentityRefused: It refused, made no sense, or did not answer within `timeout_s`.
    """
    clients = [HttpClient(address, token=token) for token in (old_token, identity.token)]
    error = "the guest was not asked"
    number, try_s = 0, _FIRST_TRY_S
    loop = asyncio.get_running_loop()
    until = loop.time() + timeout_s
    try:
        while (left_s := until - loop.time()) > 0:
            try:
                answer = await clients[number % 2].request(
                    "POST",
                    "/v1/identity",
                    identity.body(time.time_ns()),
                    timeout_s=min(try_s, left_s),
                    max_body=MAX_ANSWER_BYTES,
                )
            except GuestError as exc:
                error = str(exc)
                try_s *= 2
            else:
                # When an answer is lost after the identity was taken, the old token is no longer accepted.
                if answer.status != 401 or number > 0:
                    return acknowledged(answer, identity)
                number += 1
            await asyncio.sleep(_PAUSE_S)
    finally:
        for client in clients:
            client.close()
    raise IdentityRefused(f"no acknowledgement within {timeout_s:g} s: {error[:_TEXT_MAX]}")


def acknowledged(answer: HttpResponse, identity: GuestIdentity) -> Mapping[str, Any]:
    """Return the answer after checking that it acknowledges the identity.

    Raises:
        IdentityRefused: It does not.
    """
    text = bytes(answer.body[:_TEXT_MAX]).decode("utf-8", "replace")
    if answer.status != 200:
        raise IdentityRefused(f"status {answer.status}: {text}")
    try:
        fields = json.loads(bytes(answer.body))
    except (ValueError, RecursionError) as exc:
        raise IdentityRefused(f"not JSON: {text}") from exc
    if not isinstance(fields, dict) or str(fields.get("generation")) != str(identity.generation):
        raise IdentityRefused(f"not for generation {identity.generation}: {text}")
    applied = fields.get("applied")
    if not isinstance(applied, dict):
        raise IdentityRefused(f"the guest did not report what was applied: {text}")
    failed = sorted(name for name in REQUIRED if applied.get(name, True) is not True)
    if failed or applied.get("seed") is not True:
        raise IdentityRefused(f"not applied: {', '.join(failed) or 'seed'}")
    return fields
