"""What tests of the host's API read out of its answers."""

from __future__ import annotations

import httpx

from osgym_sdk import wire


def error(answer: httpx.Response) -> tuple[int, str]:
    """Return status and code of an error, whose shape is checked."""
    info = wire.ErrorInfo.from_dict(answer.json())
    assert info.message
    assert set(answer.json()) == {"code", "message", "details"}
    return answer.status_code, info.code
