"""Commands of a desktop, kept by their request id."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import pytest

from osgym_guest.reach import execute


async def test_a_command_that_was_cancelled_before_it_began_spoils_no_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A cancelled task has no exception to read; the commands after it are answered."""
    answer = {"stdout": "", "stderr": "", "returncode": 0}
    begun = asyncio.Event()

    async def run(order: Any, session: Any) -> dict[str, Any]:
        begun.set()
        if order.stdin:
            await asyncio.Event().wait()
        return dict(answer)

    class CommandSpec:  # all of an order that `run` reads; hence the ignores below
        def __init__(self, stdin: bytes) -> None:
            self.stdin = stdin

    monkeypatch.setattr(execute, "_run", run)
    executions = execute.Executions(None, abandoned_s=0.0)  # type: ignore[arg-type]  # no session is used
    first = asyncio.ensure_future(executions.run("first", CommandSpec(b"x")))  # type: ignore[arg-type]
    await begun.wait()
    first.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await first
    _, execution = executions._known["first"]
    assert execution is not None
    with contextlib.suppress(asyncio.CancelledError):
        await execution.work
    assert execution.work.cancelled()
    assert await executions.run("second", CommandSpec(b"")) == answer  # type: ignore[arg-type]
