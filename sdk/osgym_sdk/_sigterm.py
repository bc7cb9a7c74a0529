"""SIGTERM ends a process as Ctrl-C does: ``with`` blocks are left, so leases are given back.

Without a handler SIGTERM kills at once, and every replica stays leased until its lease runs out. While a
client is open a handler of ours raises SystemExit(143) in the main thread, or in its event loop where one
runs. It is only put where there is none: a handler of the user's, and one that ignores, stay as they are,
and one that is set later takes our place. It is gone when the last client is closed, and in children after
a fork. Clients that are made in other threads cannot set it (Python's rule).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import threading
import time
import weakref
from collections.abc import Iterator
from types import FrameType

EXIT_CODE = 128 + signal.SIGTERM
AGAIN_S = 5.0
"""Launchers send the signal twice within moments (to the process and to its group); one that comes after
this time kills at once, as it would without us."""

_clients: weakref.WeakSet[object] = weakref.WeakSet()
_first_s: float | None = None
_waiting_threads = threading.local()
_forking = threading.local()


def watch(client: object) -> None:
    """Count a client as open, and set the handler where there is none."""
    _clients.add(client)
    if _in_main_thread() and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, _on_sigterm)


def forget(client: object) -> None:
    """Count a client as closed; after the last one the handler is taken away. Idempotent."""
    _clients.discard(client)
    if not _clients and _in_main_thread() and signal.getsignal(signal.SIGTERM) is _on_sigterm:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


@contextlib.contextmanager
def waiting_here() -> Iterator[None]:
    """Say that this thread waits for a loop of ours, whatever loop of others runs in it."""
    before = _waiting()
    _waiting_threads.count = before + 1
    try:
        yield
    finally:
        _waiting_threads.count = before


def _waiting() -> int:
    count: int = getattr(_waiting_threads, "count", 0)
    return count


def _in_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()


def _on_sigterm(number: int, frame: FrameType | None) -> None:
    """Runs in the main thread, between two instructions of whatever it does."""
    global _first_s
    now_s = time.monotonic()
    if not _clients or (_first_s is not None and now_s - _first_s > AGAIN_S):
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGTERM)
        return
    if _first_s is not None:
        return
    _first_s = now_s
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        loop = None
    if loop is None or _waiting():
        _exit()
    else:
        loop.call_soon_threadsafe(_exit)  # not in the middle of the loop's own work


def _exit() -> None:
    raise SystemExit(EXIT_CODE)


def _before_fork() -> None:
    """Hold the signal back: Python forgets in a child what arrived before it can look."""
    if signal.getsignal(signal.SIGTERM) is _on_sigterm:
        _forking.mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})


def _after_fork() -> None:
    mask, _forking.mask = getattr(_forking, "mask", None), None
    if mask is not None:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def _after_fork_in_child() -> None:
    """A child has none of its parent's clients, and dies of SIGTERM as it always did."""
    global _first_s
    _clients.clear()
    _first_s = None
    if signal.getsignal(signal.SIGTERM) is _on_sigterm:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
    _after_fork()


os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_after_fork_in_child)
