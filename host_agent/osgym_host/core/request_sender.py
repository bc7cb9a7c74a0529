"""The sender of a request. Pure."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RequestSender:
    """The sender of a request: the scope of its request id, and its share in the registry.

    Attributes:
        token: Short digest of a scoped token; empty for the host's own token, and where none is required.
    """

    token: str = ""
    peer: str = ""


ANYBODY = RequestSender()
