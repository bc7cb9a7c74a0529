"""Folders of episodes, written while they run: frames, actions, the model's words.

``<folder>/steps.jsonl`` has a line for each step, ``episode.json`` the result, ``000.png`` the screen before
step 1, ``001.png`` the screen after it. The folder's name begins with a dot until its episode has ended.
"""

from __future__ import annotations

import asyncio
import json
import shutil
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

from osgym_cli.evals.jobs import Job
from osgym_cli.evals.rows import MAX_TEXT

_AHEAD = 8
"""Number of pending writes of an episode from which on its next step waits."""
_SUFFIX = {"png": ".png", "jpeg": ".jpg", "webp": ".webp"}
CANCELLED = "cancelled"


class FolderRecorder:
    """Recorder for ``record=`` of the SDK's ``run``. Close it when the run is over."""

    def __init__(self, folder: Path, jobs: Sequence[Job]) -> None:
        self.folder = folder
        self.jobs = jobs
        self._writers = ThreadPoolExecutor(1, thread_name_prefix="osgym-eval")  # one: in order
        self._pending: set[Future[None]] = set()
        self._error: BaseException | None = None

    def record(self, task: Mapping[str, Any] | None) -> FolderRecording:
        return FolderRecording(self)

    async def flush(self) -> None:
        """Wait until all is written. Raises OSError if a write failed."""
        for future in list(self._pending):
            await asyncio.wrap_future(future)
        if self._error is not None:
            raise self._error

    def close(self) -> None:
        """Wait until all is written and end the writer's thread."""
        self._writers.shutdown(wait=True)

    def write(self, work: Callable[..., None], *args: Any) -> Future[None]:
        """Call `work` in the writer's thread; :meth:`flush` raises its exception."""
        future = self._writers.submit(work, *args)
        self._pending.add(future)
        future.add_done_callback(self._done)
        return future

    def _done(self, future: Future[None]) -> None:
        self._pending.discard(future)
        error = future.exception()
        if error is not None and self._error is None:
            self._error = error


class FolderRecording:
    """Recording of one attempt at one episode."""

    def __init__(self, recorder: FolderRecorder) -> None:
        self._recorder = recorder
        self._folder: Path | None = None
        self._writes: deque[Future[None]] = deque()
        self._last: Any = None
        self._hash = ""
        self._frame = ""

    async def room(self) -> None:
        """Wait until few writes are pending."""
        while len(self._writes) > _AHEAD:
            await asyncio.wait((asyncio.wrap_future(self._writes.popleft()),))

    def begin(self, trajectory: Any, obs: Any, host: Any) -> None:
        self._folder = self._recorder.folder / f".{trajectory.episode_id[:40]}"
        self._soon(_make_folder, self._folder)
        self._keep_frame(0, obs)

    def step(self, record: Any, obs: Any) -> None:
        """Keep a step, and write the line of the step before, whose later observations are known now."""
        self._write_last()
        before = self._frame
        self._keep_frame(record.step, obs)
        self._last = (record, before, self._frame)

    def end(self, trajectory: Any, outcome: Any) -> None:
        """Give the folder its final name; remove it if the run was interrupted."""
        if self._folder is None:
            return
        self._write_last()
        if outcome.failure is not None and outcome.failure.code == CANCELLED:
            self._soon(_remove, self._folder)
            return
        job = self._recorder.jobs[outcome.index]
        self._soon(_write_json, self._folder / "episode.json", _episode(job, trajectory, outcome))
        self._soon(_rename, self._folder, self._recorder.folder / job.folder)

    def _keep_frame(self, number: int, obs: Any) -> None:
        """Write a frame, unless it equals the one before."""
        if not obs.data or obs.hash == self._hash:
            return
        self._hash = obs.hash
        self._frame = f"{number:03d}{_SUFFIX.get(obs.format.value, '.bin')}"
        assert self._folder is not None
        self._soon(_write_bytes, self._folder / self._frame, bytes(obs.data))

    def _write_last(self) -> None:
        if self._last is None or self._folder is None:
            return
        record, before, after = self._last
        self._last = None
        self._soon(_append, self._folder / "steps.jsonl", step_line(record, before, after))

    def _soon(self, work: Callable[..., None], *args: Any) -> None:
        self._writes.append(self._recorder.write(work, *args))


def step_line(record: Any, before: str, after: str) -> dict[str, Any]:
    """Return the line of a step in ``steps.jsonl``, with the names of the frames before and after it."""
    return {
        "step": record.step,
        "before": before,
        "after": after,
        "actions": [dict(action) for action in record.executed],
        "refused": record.refused,
        "done": record.done,
        "final": record.final,
        "changed_after_ms": record.changed_after_ms,
        "settle": record.settle.to_dict() if record.settle else None,
        "total_ms": round(record.timing.total_ms, 2) if record.timing else None,
        "info": plain(record.info),
    }


def _episode(job: Job, trajectory: Any, outcome: Any) -> dict[str, Any]:
    failure = outcome.failure
    evaluation = trajectory.evaluation
    return {
        "task": job.task_name,
        "repeat": job.repeat,
        "instruction": job.instruction,
        "reward": outcome.reward,
        "termination_reason": str(outcome.termination_reason),
        "failure": None if failure is None else {"code": failure.code, "message": failure.message[:MAX_TEXT]},
        "note": outcome.note,
        "evaluation": plain(list(evaluation.details)) if evaluation is not None else None,
        "attempt": outcome.attempt,
        "host": trajectory.host,
        "replica": trajectory.replica_id,
        "reset_ms": dict(trajectory.reset_ms),
        "last_info": plain(trajectory.last_info),
    }


def plain(value: Any) -> Any:
    """Return the value as JSON would hold it, or its `repr` if JSON cannot."""
    try:
        return json.loads(json.dumps(value, default=lambda other: repr(other)[:200]))
    except (TypeError, ValueError, RecursionError):
        return repr(value)[:MAX_TEXT]


def _make_folder(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)


def _write_bytes(path: Path, data: bytes) -> None:
    path.write_bytes(data)


def _write_json(path: Path, value: Any) -> None:
    path.write_text(
        json.dumps(value, ensure_ascii=False, indent=1) + "\n", encoding="utf-8", errors="replace"
    )


def _append(path: Path, value: Any) -> None:
    with path.open("a", encoding="utf-8", errors="replace") as file:
        file.write(json.dumps(value, ensure_ascii=False) + "\n")


def _rename(folder: Path, to: Path) -> None:
    _remove(to)
    folder.rename(to)


def _remove(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
