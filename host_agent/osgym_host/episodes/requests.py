"""Creates, forks and checkpoints by request id: repetitions share the work, cancelled requests are undone.

Request ids are scoped by token: the same id under another token is another request.

A request belongs to those who wait for it. When the last of them goes away before it is answered, it
is cancelled, and whatever it got is freed.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import time
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass
from typing import Any, TypeVar

from osgym_host.core.fair_dict import FairDict
from osgym_host.core.fair_queue import UNNAMED, ClientKey
from osgym_host.core.reasons import Reason
from osgym_host.core.request_sender import ANYBODY, RequestSender
from osgym_host.episodes.checkpoints import Checkpoints
from osgym_host.episodes.create_request import CreatedEpisode
from osgym_host.episodes.creator import EpisodeCreator
from osgym_host.episodes.episode import HostEpisode
from osgym_host.episodes.forks import EpisodeForks, fork_answer
from osgym_host.episodes.journal import RequestMark
from osgym_host.errors import ServiceError
from osgym_protocol.codes import ErrorCode
from osgym_protocol.host_api import CheckpointInfo, CheckpointRequest, CreateRequest, ForkAnswer, ForkRequest

KEEP = 4096
REFUSE_CANCELLED_S = 600.0

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class _CreateReplay:
    """Answer of a create for repetitions, without the first frame, which is large."""

    episode_id: str
    lease: str
    timing_ms: dict[str, float]


_RequestKey = tuple[str, str]
"""Digest of the sender's token, and request id."""
_MAY_CHANGE = frozenset(("request_id", "wait_s", "observe"))
"""Options of a create that a repetition may change."""
_SEPARATOR = ":"
"""Character between the two digests of `_meaning`."""
StoredAnswer = _CreateReplay | ForkAnswer | CheckpointInfo


@dataclass(slots=True, eq=False)
class _KnownRequest:
    task: asyncio.Task[Any] | None
    meaning: str
    keep: Callable[[Any], StoredAnswer]
    waiters: int = 0
    kept: StoredAnswer | None = None
    unbound: bool = False
    """True if an earlier version of the host agent stored the request, without the digest of its token."""


class RequestRegistry:
    def __init__(self, creator: EpisodeCreator, forks: EpisodeForks, checkpoints: Checkpoints) -> None:
        self._service = creator.service
        self._creator = creator
        self._forks = forks
        self._checkpoints = checkpoints
        self._known = FairDict[_RequestKey, _KnownRequest](KEEP, lambda request: request.task is None)
        self._cancelled = FairDict[_RequestKey, float](KEEP)

    async def create(
        self, request: CreateRequest, client: ClientKey = UNNAMED, sender: RequestSender = ANYBODY
    ) -> CreatedEpisode:
        """Create an episode, or join or repeat the create of the same id.

        A repeated create takes a fresh first frame.

        Raises:
            ServiceError: As `EpisodeCreator.create` and `Checkpoints.restore`; `cancelled` when the id was
                cancelled; `bad_request` (409) when the id is that of a request for something else.
        """
        asked = {name: value for name, value in request.to_dict().items() if name not in _MAY_CHANGE}
        meaning = _meaning(sender, asked)
        mark = RequestMark(request.request_id, meaning)
        make = self._creator.create if request.checkpoint is None else self._checkpoints.restore
        done: CreatedEpisode | _CreateReplay = await self._share(
            request.request_id, sender, meaning, lambda: make(request, client, mark), _created
        )
        if isinstance(done, _CreateReplay):
            episode = self._service.claim(done.episode_id, done.lease)
            return CreatedEpisode(episode, await episode.observe(None), done.timing_ms)
        return done

    async def fork(
        self,
        episode_id: str,
        request: ForkRequest,
        client: ClientKey = UNNAMED,
        sender: RequestSender = ANYBODY,
        *,
        for_person: bool = False,
    ) -> ForkAnswer:
        """Fork an episode, or join or repeat the fork of the same id.

        Raises:
            ServiceError: As `EpisodeForks.fork` and `create`.
        """
        asked = (request.lease, request.count, request.lease_ttl_s, request.max_steps)
        meaning = _meaning(sender, "fork", episode_id, *asked)
        mark = RequestMark(request.request_id, meaning)
        answer: ForkAnswer = await self._share(
            request.request_id,
            sender,
            meaning,
            lambda: self._forks.fork(episode_id, request, client, mark, for_person=for_person),
            _unchanged,
        )
        return answer

    async def checkpoint(
        self, episode_id: str, request: CheckpointRequest, sender: RequestSender = ANYBODY
    ) -> CheckpointInfo:
        """Take a checkpoint, or join or repeat the call of the same id.

        Raises:
            ServiceError: As `Checkpoints.take` and `create`.
        """
        asked = (request.lease, request.keep, request.ttl_s, *(["suspend"] if request.suspend else []))
        meaning = _meaning(sender, "checkpoint", episode_id, *asked)
        info: CheckpointInfo = await self._share(
            request.request_id,
            sender,
            meaning,
            lambda: self._checkpoints.take(episode_id, request),
            _unchanged,
        )
        return info

    def undo(self, request_id: str, sender: RequestSender = ANYBODY) -> None:
        """Undo a request of the sender's token, even before it arrives. Idempotent."""
        key = (sender.token, request_id)
        self._cancelled.put(key, time.monotonic() + REFUSE_CANCELLED_S, sender)
        key = self._key(sender, request_id)
        request = self._known.get(key)
        if request is not None:
            self._drop(key, request, request.task)

    def remember(self, survivors: Iterable[tuple[RequestMark, HostEpisode]]) -> None:
        """Add the requests of recovered episodes; a fork only with all its children."""
        groups: dict[_RequestKey, list[tuple[RequestMark, HostEpisode]]] = {}
        for mark, episode in survivors:
            groups.setdefault((_token_of(mark.meaning), mark.request_id), []).append((mark, episode))
        for key, group in groups.items():
            group.sort(key=lambda item: item[0].index)
            mark, first = group[0]
            if len(group) != mark.count:
                continue
            kept: StoredAnswer = _CreateReplay(first.episode_id, first.lease.token, {})
            if first.parent is not None and first.parent.checkpoint_id is None:
                kept = fork_answer([episode for _, episode in group], mark.pause_ms)
            sender = RequestSender(key[0])
            unbound = _SEPARATOR not in mark.meaning
            request = _KnownRequest(None, mark.meaning, _unchanged, kept=kept, unbound=unbound)
            self._known.put(key, request, sender)

    def _key(self, sender: RequestSender, request_id: str) -> _RequestKey:
        """Return the key of a request; that without a token if an earlier version of the agent stored it."""
        key, old_key = (sender.token, request_id), ("", request_id)
        if self._known.get(key) is None and (known := self._known.get(old_key)) is not None and known.unbound:
            return old_key
        return key

    async def _share(
        self,
        request_id: str,
        sender: RequestSender,
        meaning: str,
        start: Callable[[], Coroutine[Any, Any, T]],
        keep: Callable[[T], Any],
    ) -> Any:
        """Run the work once; return its result to all waiters, and its kept answer later."""
        self._refuse_cancelled((sender.token, request_id))
        key = self._key(sender, request_id)
        request = self._known.get(key)
        if request is not None and _asked_of(request.meaning) != _asked_of(meaning):
            text = "This request_id was used for another request."
            raise ServiceError(ErrorCode.BAD_REQUEST, text, {"request_id": request_id}, status=409)
        if request is not None and request.kept is not None:
            return request.kept
        if request is None or request.task is None:
            task = asyncio.create_task(start(), name=f"request:{request_id}")
            request = _KnownRequest(task, meaning, keep)
            self._known.put(key, request, sender)
            task.add_done_callback(lambda _: self._settle(key, request))
        assert request.task is not None
        work = request.task
        request.waiters += 1
        try:
            await asyncio.wait((work,))
        except asyncio.CancelledError:
            if request.waiters == 1:
                self._drop(key, request, work)
            raise
        finally:
            request.waiters -= 1
        if work.cancelled():
            raise ServiceError(ErrorCode.CANCELLED, "This request was cancelled.", {"request_id": request_id})
        return work.result()

    def _settle(self, key: _RequestKey, request: _KnownRequest) -> None:
        """Keep the answer of finished work; forget failed work."""
        task, request.task = request.task, None
        assert task is not None
        if not task.cancelled() and task.exception() is None:
            request.kept = request.keep(task.result())
        elif self._known.get(key) is request:
            self._known.remove(key)

    def _drop(self, key: _RequestKey, request: _KnownRequest, task: asyncio.Task[Any] | None) -> None:
        """Forget the request and free what it got or is about to get."""
        if self._known.get(key) is request:
            self._known.remove(key)
        if task is not None and not task.done():
            task.cancel()
        elif task is not None and not task.cancelled() and task.exception() is None:
            self._free(request.keep(task.result()))
        elif request.kept is not None:
            self._free(request.kept)

    def _free(self, kept: StoredAnswer) -> None:
        match kept:
            case _CreateReplay():
                self._give_up(kept.episode_id)
            case ForkAnswer():
                for child in kept.children:
                    self._give_up(child.episode_id)
            case CheckpointInfo() if not kept.suspended:  # all that there is of a suspended episode
                with contextlib.suppress(ServiceError):  # deleted or expired
                    self._checkpoints.delete(kept.checkpoint_id)

    def _give_up(self, episode_id: str) -> None:
        with contextlib.suppress(ServiceError):  # ended and forgotten long ago
            self._service.end(self._service.find(episode_id), Reason.CLIENT_GONE)

    def _refuse_cancelled(self, key: _RequestKey) -> None:
        until = self._cancelled.get(key)
        if until is not None and until > time.monotonic():
            raise ServiceError(ErrorCode.CANCELLED, "This request was cancelled.", {"request_id": key[1]})


def _created(opened: CreatedEpisode) -> _CreateReplay:
    return _CreateReplay(opened.episode.episode_id, opened.episode.lease.token, opened.timing_ms)


def _unchanged(kept: StoredAnswer) -> StoredAnswer:
    return kept


def _meaning(sender: RequestSender, *asked: Any) -> str:
    """Return the digest of the sender's token (empty without one) and the digest of the request's arguments.

    A repetition of the request must have the same digests.
    """
    digest = hashlib.sha256(json.dumps(asked, sort_keys=True).encode()).hexdigest()
    return f"{sender.token}{_SEPARATOR}{digest}"


def _token_of(meaning: str) -> str:
    return meaning.rpartition(_SEPARATOR)[0]


def _asked_of(meaning: str) -> str:
    return meaning.rpartition(_SEPARATOR)[2]
