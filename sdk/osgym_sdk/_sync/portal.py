"""An event loop in a thread, and methods that run those of the asynchronous client there."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import functools
import os
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from typing import Any, Concatenate, ParamSpec, TypeVar

from osgym_sdk import _sigterm
from osgym_sdk._exceptions import ConfigError

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")
_JOIN_S = 15.0
_SIGNAL_S = 0.5
"""Longest sleep of the main thread while it waits. Python runs a signal's handler when that thread wakes; but
the kernel may give the signal to a thread that is just starting, which wakes no other."""


class Portal:
    """An event loop in a daemon thread; ``call`` runs a coroutine there and waits for it here."""

    def __init__(self) -> None:
        self._pid = os.getpid()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="osgym-sdk", daemon=True)
        self._thread.start()

    @property
    def open(self) -> bool:
        return not self._loop.is_closed()

    def start(self, work: Coroutine[Any, Any, T]) -> concurrent.futures.Future[T]:
        """Begin ``work``, and return the future of its outcome.

        Raises:
            ConfigError: the client is closed, or belongs to the process before a fork.
        """
        if os.getpid() != self._pid or not self.open:
            work.close()
            raise ConfigError(
                "this Client is closed"
                if not self.open
                else "a Client cannot be used in a forked process: make a new one there"
            )
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        """Run ``work`` to its end. An interrupt here cancels it there, and waits until it has let go.

        Raises:
            ConfigError: as for :meth:`start`.
        """
        if threading.current_thread() is self._thread:
            work.close()
            raise ConfigError(
                "a synchronous call inside the client's own event loop would never return; use "
                "AsyncClient there"
            )
        future = self.start(work)
        try:
            with _sigterm.waiting_here():
                return _outcome(future)
        except BaseException:
            if not future.done():
                future.cancel()
                concurrent.futures.wait([future], timeout=1.0)
            raise

    def drain(self, items: AsyncIterator[T]) -> Iterator[T]:
        """Yield the items of an asynchronous iterator, waiting for each here."""
        try:
            while True:
                try:
                    yield self.call(_next(items))
                except StopAsyncIteration:
                    return
        finally:
            if self.open:
                self.call(_close(items))

    @contextlib.contextmanager
    def within(self, block: contextlib.AbstractAsyncContextManager[T]) -> Iterator[T]:
        """Enter and leave an asynchronous block from here."""
        inside = self.call(_enter(block))
        error: BaseException | None = None
        try:
            yield inside
        except BaseException as exc:
            error = exc
            raise
        finally:
            self.call(_leave(block, error))

    def close(self) -> None:
        """Stop the loop and its thread. Idempotent."""
        if not self.open or os.getpid() != self._pid:
            return
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_JOIN_S)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
        finally:
            left = asyncio.all_tasks(self._loop)
            for task in left:
                task.cancel()
            self._loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
            self._loop.close()


# Methods that stand for one of ``self._inner``, with its arguments and its docstring. -----------------


def calls(
    method: Callable[Concatenate[Any, P], T], convert: Callable[[T, Portal], R]
) -> Callable[Concatenate[Any, P], R]:
    """Return a method that calls one of ``self._inner``.

    Args:
        convert: turns its result into one that a caller without ``await`` can use.
    """

    @functools.wraps(method, assigned=("__name__", "__qualname__", "__doc__"))
    def call(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> R:
        return convert(method(self._inner, *args, **kwargs), self._portal)

    return call


def waits(
    method: Callable[Concatenate[Any, P], Coroutine[Any, Any, T]], convert: Callable[[T, Portal], R]
) -> Callable[Concatenate[Any, P], R]:
    """Return a method that calls a coroutine function of ``self._inner`` and waits for it."""
    return calls(method, lambda work, portal: convert(portal.call(work), portal))


def in_loop(
    method: Callable[Concatenate[Any, P], T], convert: Callable[[T, Portal], R]
) -> Callable[Concatenate[Any, P], R]:
    """Return a method that calls a plain function of ``self._inner`` in the loop's thread."""

    @functools.wraps(method)
    async def work(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return method(self, *args, **kwargs)

    return waits(work, convert)


def same(value: T, portal: Portal) -> T:
    """Return a result as it is."""
    return value


def _outcome(future: concurrent.futures.Future[T]) -> T:
    while True:
        try:
            return future.result(_SIGNAL_S)
        except TimeoutError:  # ours, or what the work itself raised
            if future.done():
                return future.result()


async def _enter(block: contextlib.AbstractAsyncContextManager[T]) -> T:
    return await block.__aenter__()


async def _leave(block: contextlib.AbstractAsyncContextManager[Any], error: BaseException | None) -> None:
    await block.__aexit__(None if error is None else type(error), error, None)


async def _next(items: AsyncIterator[T]) -> T:
    return await anext(items)


async def _close(items: AsyncIterator[Any]) -> None:
    aclose = getattr(items, "aclose", None)
    if aclose is not None:
        await aclose()
