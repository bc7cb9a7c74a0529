"""Parts of guest protocol v1 that the host's protocol does not share."""

from __future__ import annotations

from typing import Any

from osgym_protocol.codec import WireFormatError

EXIT_DISPLAY_GONE = 3
"""Exit code of the guest agent when the X server is gone."""

LISTEN_FD = 3
"""Descriptor of the inherited listening socket, when LISTEN_FDS is 1."""

DEFAULT_PORT = 5000

STEP_FIELDS = ("seq", "actions", "settle", "observe", "expects", "hold")
"""Fields of a step's request."""

FINAL_FIELDS = ("seq", "timeout_ms", "observe", "hold")
"""Fields of a request for the final frame of a step."""


def sequence_number(raw: Any) -> int:
    """Check the sequence number of a step. Raises WireFormatError if `raw` is not a whole number from 1."""
    if isinstance(raw, bool) or not isinstance(raw, int) or raw < 1:
        raise WireFormatError("seq must be a whole number from 1")
    return raw


def number(raw: Any, name: str, low: float, high: float) -> float:
    """Return a checked number.

    Raises:
        WireFormatError: `raw` is not a number, or lies outside [low, high].
    """
    if isinstance(raw, bool) or not isinstance(raw, (int, float)) or not low <= raw <= high:
        raise WireFormatError(f"{name} must be a number from {low:g} to {high:g}")
    return float(raw)
