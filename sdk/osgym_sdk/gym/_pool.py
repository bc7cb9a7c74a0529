"""Many slots at once: each acts in a task of its own, and is answered when it is ready."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Any

from gymnasium.vector import AutoresetMode

from osgym_sdk._inputs.options import Task
from osgym_sdk.gym._slot import Outcome, Slot

Answer = tuple[int, Outcome]


class SlotPool:
    """Used from one event loop. A slot has at most one thing under way; no slot waits for another."""

    def __init__(self, slots: Sequence[Slot], autoreset: AutoresetMode) -> None:
        self.slots = slots
        self._autoreset = autoreset
        self._ready: asyncio.Queue[tuple[int, Outcome | Exception]] = asyncio.Queue()
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._unread: set[int] = set()
        """Slots that act, or whose answer nobody has taken yet."""

    @property
    def under_way(self) -> int:
        """Number of answers that will come."""
        return len(self._unread)

    def start_reset(self, index: int, task: Task | None) -> None:
        """Begin to reset a slot."""
        self._start(index, self.slots[index].reset(task))

    def check(self, index: int) -> None:
        """Check that a slot can begin a step now.

        Raises:
            ValueError: its answer has not been taken yet, or it has ended and resets are the caller's.
        """
        if index in self._unread:
            raise ValueError(f"environment {index} is still acting, or its answer has not been read yet")
        if self.slots[index].ended and self._autoreset is AutoresetMode.DISABLED:
            raise ValueError(f"environment {index} has ended: reset it with options={{'reset_mask': ...}}")

    def start_step(self, index: int, action: Any) -> None:
        """Begin a step of a slot that can."""
        self._start(index, self._turn(self.slots[index], action))

    async def receive(self, count: int, timeout_s: float | None) -> list[Answer]:
        """Return ``count`` answers as they come, no more than are under way; fewer when the time is up.

        Raises:
            Exception: what a slot raised.
        """
        answers: list[Answer] = []
        try:
            async with asyncio.timeout(timeout_s):
                while self._unread and len(answers) < count:
                    index, outcome = await self._ready.get()
                    self._unread.discard(index)
                    if isinstance(outcome, Exception):
                        for again in answers:  # of the others nothing is lost
                            self._unread.add(again[0])
                            self._ready.put_nowait(again)
                        raise outcome
                    answers.append((index, outcome))
        except TimeoutError:
            pass
        return answers

    async def drop(self, index: int) -> None:
        """Forget what a slot does, and its answer."""
        task = self._tasks.pop(index, None)
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        kept = [self._ready.get_nowait() for _ in range(self._ready.qsize())]
        for item in kept:
            if item[0] != index:
                self._ready.put_nowait(item)
        self._unread.discard(index)

    async def aclose(self) -> None:
        """Stop what is under way and give all replicas back. Idempotent."""
        for index in list(self._tasks):
            await self.drop(index)
        await asyncio.gather(*(slot.aclose() for slot in self.slots), return_exceptions=True)

    async def _turn(self, slot: Slot, action: Any) -> Outcome:
        if slot.ended:
            return await slot.replace()
        outcome = await slot.step(action)
        if outcome.ended and self._autoreset is AutoresetMode.SAME_STEP:
            fresh = await slot.replace()
            outcome.final = (outcome.pixels, outcome.info)
            outcome.pixels, outcome.info = fresh.pixels, fresh.info
        return outcome

    def _start(self, index: int, work: Coroutine[Any, Any, Outcome]) -> None:
        self._unread.add(index)
        self._tasks[index] = asyncio.create_task(self._answer(index, work), name=f"osgym-env-{index}")

    async def _answer(self, index: int, work: Coroutine[Any, Any, Outcome]) -> None:
        try:
            outcome: Outcome | Exception = await work
        except Exception as exc:  # noqa: BLE001 - top of a task: whoever takes the answer raises it
            outcome = exc
        self._ready.put_nowait((index, outcome))
