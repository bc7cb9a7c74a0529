"""OpenEnv: desktops behind its server: one WebSocket is one environment is one desktop at a time.

>>> from osgym_sdk.integrations.openenv import app
>>> uvicorn.run(app("tasks/", hosts="http://127.0.0.1:20000"), port=8000)  # doctest: +SKIP
>>> with GenericEnvClient(base_url="http://127.0.0.1:8000").sync() as env:  # doctest: +SKIP
...     result = env.reset(index=0)
...     result = env.step({"action": "click(100,200)"})

Needs ``pip install 'osgym-sdk[openenv]'``. Its HTTP routes ``/reset`` and ``/step`` hold no episode:
use ``/ws``, as its clients do.
"""

from __future__ import annotations

import functools
import random
from collections.abc import Mapping
from typing import Any

from osgym_sdk._exceptions import ConfigError
from osgym_sdk._extras import need_extra
from osgym_sdk.integrations import _rollouts
from osgym_sdk.integrations._desktop import Desktop, Hosts

need_extra("openenv", "openenv")

from openenv.core.env_server import Action, Environment, Observation, State, create_fastapi_app  # noqa: E402 - after the check
from pydantic import Field  # noqa: E402 - after the check, whose error names the extra

__all__ = ["DesktopAction", "DesktopEnvironment", "DesktopObservation", "DesktopState", "app"]

SPLIT = "all"


class DesktopAction(Action):
    """Output of the model."""

    action: str | dict[str, Any] | list[Any]
    """An action string, an internal action, a list of these; or what the server's grammar reads."""


class DesktopObservation(Observation):
    """The screen after a step. ``reward`` is None until the end, and where there is none."""

    instruction: str = ""
    """Instruction of the task; with the first observation."""
    content: list[dict[str, Any]] = Field(default_factory=list)
    """Parts of a user's message: what went wrong, then the screen as ``image_url`` (a data URL) or text."""
    valid: bool = True
    """False: the desktop was lost or the task could not be scored; nothing is to be learned from it."""
    failure: str = ""
    """Reason why ``valid`` is False."""


class DesktopState(State):
    """The state of an environment."""

    task_id: str = ""


class DesktopEnvironment(Environment[DesktopAction, DesktopObservation, DesktopState]):
    """One desktop at a time; made by the server for each connection, and closed with it."""

    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self, tasks: Any = None, hosts: Hosts = None, sees: str = "image", **options: Any) -> None:
        """Lease nothing yet.

        Args:
            tasks: what ``reset`` chooses from, as for :meth:`osgym_sdk.Client.run`; else callers bring
                theirs.
            hosts: as for :class:`osgym_sdk.Client`.
            sees: ``image`` or ``elements``.
            options: ``actions``, ``size``, ``max_steps``, ``wait_s``, ...

        Raises:
            ConfigError: an argument is wrong.
        """
        super().__init__()
        self._tasks = [] if tasks is None else [task for task, _ in _rollouts.rows(tasks)]
        self._sees = sees
        self._desktop = Desktop(hosts, **_rollouts.text_options(sees, **options))
        self._state = DesktopState()

    def reset(
        self, seed: int | None = None, episode_id: str | None = None, **given: Any
    ) -> DesktopObservation:
        return self._desktop.call(self._reset(seed, episode_id, given))

    async def reset_async(
        self, seed: int | None = None, episode_id: str | None = None, **given: Any
    ) -> DesktopObservation:
        """Give the desktop back and begin with a task: ``task`` (an object), ``index``, or one by the seed.

        Raises:
            ConfigError: there is no such task.
        """
        return await self._desktop.wait(self._reset(seed, episode_id, given))

    def step(self, action: DesktopAction, timeout_s: float | None = None, **given: Any) -> DesktopObservation:
        return self._desktop.call(self._step(action))

    async def step_async(
        self, action: DesktopAction, timeout_s: float | None = None, **given: Any
    ) -> DesktopObservation:
        """Act; steps have the client's own deadline.

        Raises:
            EpisodeEnded: reset first.
        """
        return await self._desktop.wait(self._step(action))

    @property
    def state(self) -> DesktopState:
        """Episode, steps, task."""
        return self._state

    def close(self) -> None:
        """Give the desktop back. Idempotent."""
        self._desktop.close()

    def list_splits(self) -> list[str]:
        """Return the names of the splits, of which there is one."""
        return [SPLIT]

    def num_tasks(self, split: str) -> int:
        """Return the number of tasks that ``reset`` chooses from."""
        return len(self._tasks)

    def list_tasks(self, split: str) -> list[dict[str, Any]]:
        """Return what they ask for."""
        return [self.get_task(split, index) for index in range(len(self._tasks))]

    def get_task(self, split: str, index: int) -> dict[str, Any]:
        """Return what one asks for.

        Raises:
            IndexError: there is none of this index.
        """
        if not 0 <= index < len(self._tasks):
            raise IndexError(f"there are {len(self._tasks)} tasks, but none has the index {index}")
        task = self._tasks[index]
        said = _rollouts.instruction_of(task)
        return {"id": str(task.get("id", index)), "index": index, "instruction": said}

    async def _reset(
        self, seed: int | None, episode_id: str | None, given: Mapping[str, Any]
    ) -> DesktopObservation:
        task = self._chosen(seed, given)
        rollout = self._desktop.rollout
        await rollout.begin(task)
        name = episode_id or ("" if rollout.ended else rollout.episode.episode_id)
        self._state = DesktopState(episode_id=name, task_id=str((task or {}).get("id", "")))
        made = await self._observation("")
        made.instruction = _rollouts.instruction_of(task)
        return made

    def _chosen(self, seed: int | None, given: Mapping[str, Any]) -> dict[str, Any] | None:
        task, index = given.get("task"), given.get("index")
        if task is not None:
            if not isinstance(task, Mapping):  # a path would be one of this machine
                raise ConfigError(f"task must be an object, not {type(task).__name__}")
            return _rollouts.task_of(task)
        if not self._tasks:
            return None
        if index is None:
            index = random.Random(seed).randrange(len(self._tasks))  # noqa: S311 - which task, no secret
        if type(index) is not int or not 0 <= index < len(self._tasks):
            raise ConfigError(f"index must be from 0 to {len(self._tasks) - 1}, not {str(index)[:60]}")
        return self._tasks[index]

    async def _step(self, action: DesktopAction) -> DesktopObservation:
        words = await self._desktop.rollout.act(action.action)
        self._state.step_count = self._desktop.steps
        return await self._observation(words)

    async def _observation(self, words: str) -> DesktopObservation:
        rollout = self._desktop.rollout
        content = [] if rollout.ended else await _rollouts.shown(rollout, self._sees, words)
        if rollout.ended and words:
            content = [{"type": "text", "text": words}]
        failure = rollout.failure
        return DesktopObservation(
            done=rollout.ended,
            reward=rollout.reward,
            content=content,
            valid=failure is None,
            failure="" if failure is None else f"{failure.code}: {failure.message}",
        )


def app(tasks: Any = None, hosts: Hosts = None, desktops: int = 8, **options: Any) -> Any:
    """Return the FastAPI application of a server: ``/ws``, ``/schema``, ``/health``, ...

    Args:
        tasks, hosts, options: as for :class:`DesktopEnvironment`.
        desktops: connections at a time; more are refused.

    Raises:
        ConfigError: an argument is wrong.
    """
    loaded = None if tasks is None else [task for task, _ in _rollouts.rows(tasks)]
    make = functools.partial(DesktopEnvironment, loaded, hosts, **options)
    make()._desktop.close()  # wrong arguments are told now, not to the first who connects
    return create_fastapi_app(
        make, DesktopAction, DesktopObservation, max_concurrent_envs=desktops, env_name="osgym",
        state_cls=DesktopState,
    )  # fmt: skip
