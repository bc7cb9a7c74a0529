"""Creates by request id: repeated ones share the work, cancelled ones are undone.

A create belongs to those who wait for it. When the last of them goes away before it is answered, it
is cancelled, and whatever it got is freed.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import time
from collections import OrderedDict
from dataclasses import dataclass, field

from osgym_host.core.reasons import Reason
from osgym_host.episodes.errors import EpisodeError
from osgym_host.episodes.opening import Opened, Wish
from osgym_host.episodes.service import EpisodeService

KEEP = 4096
REFUSE_CANCELLED_S = 600.0


@dataclass(slots=True, eq=False)
class _Request:
    task: asyncio.Task[Opened] | None
    meaning: bytes
    waiters: int = 0
    episode_id: str | None = None
    lease: str = ""
    timing_ms: dict[str, float] = field(default_factory=dict)


class Requests:
    """The creates of this host by their request id."""

    def __init__(self, service: EpisodeService) -> None:
        """Starts empty."""
        self._service = service
        self._known: OrderedDict[str, _Request] = OrderedDict()
        self._cancelled: OrderedDict[str, float] = OrderedDict()

    async def create(self, request_id: str, wish: Wish) -> Opened:
        """Creates an episode, or joins or repeats the create of the same id.

        A repeated create takes a fresh first frame.

        Raises:
            EpisodeError: As `EpisodeService.create`; `cancelled` when the id was cancelled;
                `bad_request` (409) when the id is that of a create of something else.
        """
        self._refuse_cancelled(request_id)
        request = self._known.get(request_id)
        meaning = _meaning(wish)
        if request is not None and request.meaning != meaning:
            text = "This request_id was used for another create."
            raise EpisodeError("bad_request", 409, text, {"request_id": request_id})
        if request is not None and request.episode_id is not None:
            return await self._again(request.episode_id, request.lease, request.timing_ms)
        if request is None or request.task is None:
            task = asyncio.create_task(self._service.create(wish), name=f"create:{request_id}")
            request = self._known[request_id] = _Request(task, meaning)
            task.add_done_callback(lambda _: self._settle(request_id, request))
            self._trim()
        assert request.task is not None
        task = request.task
        request.waiters += 1
        try:
            await asyncio.wait((task,))
        except asyncio.CancelledError:
            if request.waiters == 1:
                self._drop(request_id, request, task)
            raise
        finally:
            request.waiters -= 1
        if task.cancelled():
            raise EpisodeError("cancelled", 409, "This request was cancelled.", {"request_id": request_id})
        return task.result()

    def _settle(self, request_id: str, request: _Request) -> None:
        """Keeps of a finished create what a repetition needs, not its frame; of a failed one nothing."""
        task, request.task = request.task, None
        assert task is not None
        if not task.cancelled() and task.exception() is None:
            opened = task.result()
            request.episode_id, request.lease = opened.episode.episode_id, opened.episode.lease
            request.timing_ms = opened.timing_ms
        elif self._known.get(request_id) is request:
            del self._known[request_id]

    async def _again(self, episode_id: str, lease: str, timing_ms: dict[str, float]) -> Opened:
        episode = self._service.claim(episode_id, lease)
        return Opened(episode, await episode.look(None), timing_ms)

    def undo(self, request_id: str) -> None:
        """Undoes a create, also one that is still to arrive. Idempotent."""
        self._cancelled[request_id] = time.monotonic() + REFUSE_CANCELLED_S
        self._cancelled.move_to_end(request_id)
        request = self._known.get(request_id)
        if request is not None:
            self._drop(request_id, request, request.task)
        self._trim()

    def _drop(self, request_id: str, request: _Request, task: asyncio.Task[Opened] | None) -> None:
        """Frees whatever the create got or is about to get; a later one of this id starts anew."""
        if self._known.get(request_id) is request:
            del self._known[request_id]
        if task is not None and not task.done():
            task.cancel()
        elif task is not None and not task.cancelled() and task.exception() is None:
            self._service.end(task.result().episode, Reason.CLIENT_GONE)
        elif request.episode_id is not None:
            with contextlib.suppress(EpisodeError):  # ended and forgotten long ago
                self._service.end(self._service.find(request.episode_id), Reason.CLIENT_GONE)

    def _refuse_cancelled(self, request_id: str) -> None:
        until = self._cancelled.get(request_id)
        if until is not None and until > time.monotonic():
            raise EpisodeError("cancelled", 409, "This request was cancelled.", {"request_id": request_id})

    def _trim(self) -> None:
        while len(self._known) > KEEP:
            oldest = next(iter(self._known))
            if self._known[oldest].task is not None:
                break
            del self._known[oldest]
        while len(self._cancelled) > KEEP:
            self._cancelled.popitem(last=False)


def _meaning(wish: Wish) -> bytes:
    """Digest of what a repetition must not change: all but how long to wait and how to look."""
    asked = (wish.task, wish.lease_ttl_s, wish.max_steps, wish.settle)
    return hashlib.sha256(json.dumps(asked, sort_keys=True).encode()).digest()
