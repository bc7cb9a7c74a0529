"""Pool of parked processes: QEMUs started ahead of demand that wait for a state to load.

A parked process has everything that does not depend on who asks: its memory mapping, its overlay, its
forwarded port, its connection. It costs some 12 MB; taking one saves the start of a process. What is
to be started when is decided by `processes_to_start`, a pure function; `ParkedPool` carries it out.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

from osgym_host.core.backoff import Backoff, BackoffPolicy, Circuit
from osgym_host.runtimes.base import RuntimeNotRunning

log = logging.getLogger(__name__)


class Parkable(Protocol):
    @property
    def is_alive(self) -> bool:
        """Whether its process runs and can still be used."""
        ...

    async def wait_end(self) -> object:
        """Wait, without a deadline, until its process is gone."""
        ...


T = TypeVar("T", bound=Parkable)


@dataclass(frozen=True, slots=True)
class ParkedPoolState:
    """Counts by which the pool decides.

    Attributes:
        ready: Number of parked, live machines.
        starting: Number of machines being started.
        waiting: Number of creates that wait for a machine; 0 while any is ready.
        resuming: Number of creates that resume a machine now.
        cooling_down: True shortly after resuming clones filled the host.
        circuit_open: True after failed attempts: none is started ahead of demand for now.
    """

    ready: int
    starting: int
    waiting: int
    resuming: int = 0
    cooling_down: bool = False
    circuit_open: bool = False


def processes_to_start(target: int, at_once: int, view: ParkedPoolState) -> int:
    """Return the number of processes to start now.

        Waiting creates come first. The pool is filled up to `target` only while fewer clones resume than
    processes may
        be started at once, and not shortly after: their clients act at once, so a fork leaves the CPU to its
        children.
    """
    refills_later = view.circuit_open or view.cooling_down or view.resuming >= at_once
    wanted = view.waiting if refills_later else view.waiting + target
    return max(0, min(wanted - view.ready - view.starting, at_once - view.starting))


@dataclass(frozen=True, slots=True)
class ParkedPoolOptions:
    """Options of the pool.

    Attributes:
        target: Number of parked processes kept ready.
        at_once: Number of processes started at the same time: as many as the host has cores.
        cooldown_s: Time without starts ahead of demand after resuming clones kept all cores busy.
    """

    target: int = 2
    at_once: int = 2
    cooldown_s: float = 0.3
    backoff: BackoffPolicy = field(default_factory=lambda: BackoffPolicy(base_s=1.0, max_s=60.0))


class ParkedPool(Generic[T]):
    """Pool of parked processes of one kind, for one event loop."""

    def __init__(
        self,
        options: ParkedPoolOptions,
        make: Callable[[], Awaitable[T]],
        discard: Callable[[T], Awaitable[None]],
    ) -> None:
        self._options = options
        self._make = make
        self._discard = discard
        self._ready: deque[T] = deque()
        self._waiters: deque[asyncio.Future[T]] = deque()
        self._tasks: set[asyncio.Task[None]] = set()
        self._watches: dict[T, asyncio.Task[None]] = {}
        self._starting = 0
        self._resuming = 0
        self._backoff = Backoff()
        self._filling = False
        self._closed = False
        self._retry: asyncio.TimerHandle | None = None
        self._cooldown_until = 0.0

    def start(self) -> None:
        """Begin to keep `target` machines ready."""
        self._filling = True
        self._fill()

    @property
    def ready(self) -> tuple[T, ...]:
        return tuple(self._ready)

    async def take(self) -> T:
        """Return the oldest live machine; wait for a new one when there is none.

        Safe to cancel: a machine made for a cancelled caller stays in the pool.

        Raises:
            RuntimeNotRunning: The pool is closed.
            Exception: Error of `make`.
        """
        if self._closed:
            raise _stopping()
        while self._ready:
            taken = self._ready.popleft()
            self._unwatch(taken)
            if taken.is_alive:
                # When those who come together have all taken theirs, and say so with `resuming`.
                asyncio.get_running_loop().call_soon(self._fill)
                return taken
            self._spawn(self._discard_quietly(taken))
        waiter: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        self._fill()
        try:
            return await waiter
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled() and waiter.exception() is None:
                self._put(waiter.result())
            raise
        finally:
            with contextlib.suppress(ValueError):
                self._waiters.remove(waiter)

    @contextlib.contextmanager
    def resuming(self) -> Iterator[None]:
        """Context during which a clone resumes, and refilling can wait."""
        self._resuming += 1
        try:
            yield
        finally:
            if self._resuming >= self._options.at_once:
                self._cooldown_until = time.monotonic() + self._options.cooldown_s
                asyncio.get_running_loop().call_later(self._options.cooldown_s + 0.01, self._fill)
            self._resuming -= 1
            self._fill()

    async def close(self) -> None:
        """Discard all machines, those being made included. Waiting callers are refused. Idempotent."""
        self._closed = True
        if self._retry is not None:
            self._retry.cancel()
        while (waiter := self._next_waiter()) is not None:
            waiter.set_exception(_stopping())
        while self._tasks:
            await asyncio.wait(self._tasks)
        left = list(self._ready)
        self._ready.clear()
        for machine in left:
            self._unwatch(machine)
        await asyncio.gather(*(self._discard_quietly(machine) for machine in left))
        while self._tasks:
            await asyncio.wait(self._tasks)

    # Filling -------------------------------------------------------------------------------------

    def _fill(self) -> None:
        if self._closed:
            return
        now = time.monotonic()
        circuit = self._backoff.circuit(self._options.backoff, now)
        waiting = sum(not waiter.done() for waiter in self._waiters)
        target = self._options.target if self._filling else 0
        if circuit is Circuit.HALF_OPEN:
            target = min(target, 1)
        view = ParkedPoolState(
            ready=len(self._ready),
            starting=self._starting,
            waiting=waiting,
            resuming=self._resuming,
            cooling_down=now < self._cooldown_until,
            circuit_open=circuit is Circuit.OPEN,
        )
        for _ in range(processes_to_start(target, self._options.at_once, view)):
            self._starting += 1
            self._spawn(self._start_one())
        if view.circuit_open and self._filling and self._retry is None:
            self._retry = asyncio.get_running_loop().call_later(
                max(0.0, self._backoff.not_before - now) + 0.01, self._retry_fill
            )

    def _retry_fill(self) -> None:
        self._retry = None
        self._fill()

    async def _start_one(self) -> None:
        try:
            made = await self._make()
        except Exception as exc:  # noqa: BLE001  # the top of a task; told to who waits, or logged
            self._backoff = self._backoff.failed(self._options.backoff, time.monotonic())
            waiter = self._next_waiter()
            if waiter is not None:
                waiter.set_exception(exc)
            else:
                log.warning("a parked QEMU process could not be started: %s", exc)
        else:
            self._backoff = self._backoff.succeeded()
            if self._closed:
                await self._discard_quietly(made)
            else:
                self._put(made)
        finally:
            self._starting -= 1
            self._fill()

    def _put(self, machine: T) -> None:
        waiter = self._next_waiter()
        if waiter is not None:
            waiter.set_result(machine)
            return
        self._ready.append(machine)
        self._watches[machine] = asyncio.create_task(self._watch(machine))

    def _next_waiter(self) -> asyncio.Future[T] | None:
        while self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                return waiter
        return None

    async def _watch(self, machine: T) -> None:
        await machine.wait_end()
        if machine in self._ready:
            self._ready.remove(machine)
            self._watches.pop(machine, None)
            log.warning("a parked QEMU process ended by itself and is replaced")
            self._spawn(self._discard_quietly(machine))
            self._backoff = self._backoff.failed(self._options.backoff, time.monotonic())
            self._fill()

    def _unwatch(self, machine: T) -> None:
        watch = self._watches.pop(machine, None)
        if watch is not None:
            watch.cancel()
            self._tasks.add(watch)
            watch.add_done_callback(self._tasks.discard)

    async def _discard_quietly(self, machine: T) -> None:
        try:
            await self._discard(machine)
        except Exception:  # the top of a task; the next host agent finds its record
            log.exception("a parked QEMU process could not be removed")

    def _spawn(self, work: Awaitable[None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _stopping() -> RuntimeNotRunning:
    return RuntimeNotRunning("the runtime is stopping")
