"""Wait, with a deadline, for what tells nobody that it happened."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Callable
from typing import Any

POLL_S = 0.01


async def until(condition: Callable[[], Any], timeout_s: float = 20.0, what: str = "") -> Any:
    """Poll until a condition, or what comes of awaiting it, is true; return that.

    Raises:
        AssertionError: It was not true within its time; names `what`, or where the condition is written.
    """
    try:
        async with asyncio.timeout(timeout_s):
            while True:
                found = condition()
                if inspect.isawaitable(found):
                    found = await found
                if found:
                    return found
                await asyncio.sleep(POLL_S)
    except TimeoutError:
        code = getattr(condition, "__code__", None)
        place = f"{code.co_filename}:{code.co_firstlineno}" if code else repr(condition)
        raise AssertionError(f"not within {timeout_s:g} s: {what or place}") from None


async def stays(condition: Callable[[], bool], seconds: float) -> None:
    """Assert that a condition holds for a time, where the thing tested is that nothing happens."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        await asyncio.sleep(POLL_S)
        assert condition()
