"""What a call costs in processor time of the thread that answers all calls.

It is measured between the points where the call waits for something, also in a task that works for the call.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Generator
from contextvars import ContextVar
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class MeasuredCall(Awaitable[T], Generic[T]):
    """An awaitable that counts the processor time of its thread while another one runs.

    Attributes:
        cost_s: Seconds so far.
    """

    def __init__(self, inner: Awaitable[T]) -> None:
        """Keep what is to be awaited."""
        self._inner = inner
        self.cost_s = 0.0

    def __await__(self) -> Generator[Any, Any, T]:
        """Pass on everything in both directions."""
        steps = self._inner.__await__()
        resume: Any = lambda: next(steps)  # noqa: E731
        while True:
            began_s = time.thread_time()
            try:
                waits_for = resume()
            except StopIteration as end:
                result: T = end.value
                return result
            finally:
                self.cost_s += time.thread_time() - began_s
            try:
                given = yield waits_for
            except BaseException as error:  # noqa: BLE001  # it is the inner one's to handle
                thrown = error
                resume = lambda: steps.throw(thrown)  # noqa: E731, B023
            else:
                resume = lambda: steps.send(given)  # noqa: E731, B023

    async def run(self) -> T:
        """Await it, and count what `charged_to_caller` runs in tasks that it starts."""
        token = _caller.set(self)
        try:
            return await self
        finally:
            _caller.reset(token)


_caller: ContextVar[MeasuredCall[Any] | None] = ContextVar("caller", default=None)
"""The call that is being answered; a task has that of whoever started it."""


async def charged_to_caller(work: Awaitable[T]) -> T:
    """Await what a task does for the call that started it, and count the cost there."""
    caller, measured = _caller.get(), MeasuredCall(work)
    try:
        return await measured
    finally:
        if caller is not None:
            caller.cost_s += measured.cost_s
