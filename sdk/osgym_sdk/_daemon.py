"""Calls in daemon threads: code of others that may never return, which no exit of the process waits for."""

from __future__ import annotations

import asyncio
import contextlib
import queue
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Outcome:
    """Result or exception of a call: exceptions of other people's code travel as values."""

    value: Any = None
    error: BaseException | None = None

    def unwrap(self) -> Any:
        """Return the result, or raise the exception; one that would end an event loop as a RuntimeError."""
        if self.error is None:
            return self.value
        if isinstance(self.error, Exception):
            raise self.error
        raise RuntimeError(f"{type(self.error).__name__} in a thread") from self.error


class DaemonThread:
    """A thread that calls one function after the other, for one event loop."""

    def __init__(self, name: str) -> None:
        self._loop = asyncio.get_running_loop()
        self._calls: queue.SimpleQueue[tuple[asyncio.Future[Outcome], Callable[[], Any]] | None]
        self._calls = queue.SimpleQueue()
        threading.Thread(target=self._run, name=name, daemon=True).start()

    async def call(self, function: Callable[[], Any]) -> Outcome:
        """Call a function; SystemExit and KeyboardInterrupt are its own, as a signal interrupts no thread."""
        answer: asyncio.Future[Outcome] = self._loop.create_future()
        self._calls.put((answer, function))
        return await answer

    def close(self) -> None:
        """Let the thread end once the call that runs is over."""
        self._calls.put(None)

    def _run(self) -> None:
        while (waiting := self._calls.get()) is not None:
            answer, function = waiting
            try:
                outcome = Outcome(function())
            except BaseException as exc:  # noqa: BLE001 - it is raised where it is awaited
                outcome = Outcome(error=exc)
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
                self._loop.call_soon_threadsafe(_resolve, answer, outcome)
            del waiting, answer, function, outcome  # a thread that waits keeps no observation


def _resolve(answer: asyncio.Future[Outcome], outcome: Outcome) -> None:
    if not answer.done():
        answer.set_result(outcome)


async def in_thread(work: Callable[[], Any]) -> Any:
    """Run what blocks in a thread of its own, and return its result; its own deadlines bound it."""
    thread = DaemonThread("osgym-blocking")
    try:
        return (await thread.call(work)).unwrap()
    finally:
        thread.close()
