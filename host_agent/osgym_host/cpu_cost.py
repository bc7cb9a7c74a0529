"""Measurement of the CPU time that a call costs the thread that answers all calls.

The time is summed between the points where the call waits, and includes tasks that work for the call.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Generator
from contextvars import ContextVar
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class MeasuredCall(Awaitable[T], Generic[T]):
    """An awaitable that wraps another one and sums the thread's CPU time while that runs.

    Attributes:
        cost_s: CPU seconds so far.
    """

    def __init__(self, inner: Awaitable[T]) -> None:
        self._inner = inner
        self.cost_s = 0.0

    def __await__(self) -> Generator[Any, Any, T]:
        """Run the wrapped awaitable; what it yields, and what is sent or thrown into it, passes through."""
        steps = self._inner.__await__()
        resume: Any = lambda: next(steps)  # noqa: E731  # reassigned below
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
            except BaseException as error:  # noqa: BLE001  # the wrapped awaitable handles it
                thrown = error
                resume = lambda: steps.throw(thrown)  # noqa: E731, B023  # called before the next assignment
            else:
                resume = lambda: steps.send(given)  # noqa: E731, B023  # called before the next assignment

    async def run(self) -> T:
        """Run the call; its cost includes that of its tasks by `charged_to_caller`."""
        token = _caller.set(self)
        try:
            return await self
        finally:
            _caller.reset(token)


_caller: ContextVar[MeasuredCall[Any] | None] = ContextVar("caller", default=None)
"""Call that is being answered; a task inherits the call that started it."""


async def charged_to_caller(work: Awaitable[T]) -> T:
    """Await work of a task for the call that started it, and add its cost to that call's."""
    caller, measured = _caller.get(), MeasuredCall(work)
    try:
        return await measured
    finally:
        if caller is not None:
            caller.cost_s += measured.cost_s
