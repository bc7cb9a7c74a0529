"""Requests to a guest agent whose answers have a bounded size and a checked form; used by all typed calls."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any

from osgym_host.guest_client.answers import (
    MAX_SMALL_JSON_BYTES,
    GuestRefused,
    json_object,
    large_json_object,
    refusal,
    text_of,
)
from osgym_host.guest_client.errors import GuestAnswerTooLarge, GuestTimeout
from osgym_host.guest_client.http import MAX_BODY_BYTES, HttpClient, HttpResponse
from osgym_protocol.codes import GuestErrorCode

MAX_TEXT_BYTES = 64 * 1024
"""Bound of a setup step's answer."""
MAX_JSON_BYTES = 16 * 1024 * 1024
"""Bound of an answer with long texts, which is parsed in pieces: a command's output, an accessibility tree, a
terminal's text. Also of the names below a folder, which are not parsed here."""
FORM = "application/x-www-form-urlencoded"


class GuestCalls:
    """Requests to one guest agent, by the form of their answer."""

    def __init__(self, http: HttpClient) -> None:
        self._http = http

    async def answer(
        self,
        method: str,
        path: str,
        body: bytes = b"",
        *,
        content_type: str = "application/json",
        timeout_s: float,
        max_body: int = MAX_BODY_BYTES,
    ) -> HttpResponse:
        """Return the whole answer.

        Raises:
            GuestRefused: The answer has an error status.
        """
        answer = await self._http.request(
            method, path, body, content_type=content_type, timeout_s=timeout_s, max_body=max_body
        )
        if answer.status >= 300:
            raise refusal(answer)
        return answer

    async def small_json(
        self, method: str, path: str, body: Mapping[str, Any] | None = None, *, timeout_s: float
    ) -> dict[str, Any]:
        data = b"" if body is None else json.dumps(body).encode()
        answer = await self.answer(method, path, data, timeout_s=timeout_s, max_body=MAX_SMALL_JSON_BYTES)
        return json_object(answer)

    async def large_json(
        self, method: str, path: str, data: bytes = b"", *, timeout_s: float, max_body: int
    ) -> dict[str, Any]:
        """Return a JSON object with a few long texts; reading and parsing have one deadline.

        Raises:
            GuestAnswerTooLarge: The answer has more than `max_body` bytes, or its other values are large.
        """
        try:
            async with asyncio.timeout(timeout_s):
                answer = await self.answer(method, path, data, timeout_s=timeout_s, max_body=max_body)
                return await large_json_object(answer)
        except TimeoutError as exc:
            message = f"{method} {path}: no answer within {timeout_s:g} s"
            raise GuestTimeout(message, delivered=True, timeout_s=timeout_s) from exc

    async def output(
        self, method: str, path: str, body: Mapping[str, Any] | None = None, *, timeout_s: float
    ) -> dict[str, Any]:
        """Return a JSON object with the output of a program.

        Raises:
            GuestRefused: 502 `answer_too_large`: the output is too long, no fault of the guest agent.
        """
        data = b"" if body is None else json.dumps(body).encode()
        try:
            return await self.large_json(method, path, data, timeout_s=timeout_s, max_body=MAX_JSON_BYTES)
        except GuestAnswerTooLarge as exc:
            raise _too_large(exc) from exc

    async def text(self, path: str, body: Mapping[str, Any], *, timeout_s: float) -> str:
        """Return a short text of a program; `GuestRefused` as `output`."""
        return text_of(await self.bounded(path, body, timeout_s=timeout_s, max_body=MAX_TEXT_BYTES))

    async def bounded(
        self, path: str, body: Mapping[str, Any], *, timeout_s: float, max_body: int
    ) -> HttpResponse:
        """Return an answer that a program can make endless; `GuestRefused` as `output`."""
        data = json.dumps(body).encode()
        try:
            return await self.answer("POST", path, data, timeout_s=timeout_s, max_body=max_body)
        except GuestAnswerTooLarge as exc:
            raise _too_large(exc) from exc


def _too_large(error: GuestAnswerTooLarge) -> GuestRefused:
    return GuestRefused(502, GuestErrorCode.ANSWER_TOO_LARGE, str(error), {})
