"""The arguments that both environments have, and what is made of them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypedDict

import numpy as np
from gymnasium import spaces

from osgym_protocol.grammars import Coordinates
from osgym_sdk._batch.task_run import OnInvalid
from osgym_sdk._batch.ticks import StepTicks
from osgym_sdk._environment import Environment, EnvironmentOptions
from osgym_sdk._exceptions import ConfigError
from osgym_sdk._inputs.options import Settle, Task, as_choice
from osgym_sdk._inputs.tasks import as_tasks
from osgym_sdk._sync import Client
from osgym_sdk.gym.actions import ActionForm, Size, make_form
from osgym_sdk.wire import ImageFormat, ObserveOptions

DEFAULT_SIZE: Size = (640, 360)
DEFAULT_GRID = (32, 18)


class DesktopSettings(TypedDict, total=False):
    """Arguments of :class:`DesktopEnv` and :class:`DesktopVectorEnv`.

    Keys:
        hosts: as for :class:`osgym_sdk.Client`; or
        client: one that is there already, and is not closed with the environment.
        task: a task, the path of one, of a folder or a pattern, or a list of them, of which each reset takes
            one at random; None: a clean desktop, which scores nothing.
        size: width and height of the observation in pixels; the host scales.
        action_form: ``"dict"``, ``"discrete"`` or ``"text"``.
        grid: columns and rows that the discrete form clicks into.
        grammar, coordinates: of the text form, as ``actions`` and ``coordinates`` of an episode.
        max_steps: after so many the episode is truncated, and scored as it stands.
        on_invalid: what follows a refused action: ``"noop"`` (it counts as a step, ``info["refused"]`` says
            why), ``"end"`` (scored as it stands), ``"error"`` (raised).
        lost_reward: the reward of a step that has none, since we failed; NaN unless given.
        retries: how many more replicas a reset tries when the infrastructure failed under it.
        wait_s: how long a reset waits for a replica.
        lease_ttl_s: how long a host keeps a replica without hearing from us.
        settle: how steps wait for the screen.
    """

    hosts: str | Sequence[str] | None
    client: Client | None
    task: Any
    size: Size
    action_form: str
    grid: tuple[int, int]
    grammar: str | None
    coordinates: Coordinates | None
    max_steps: int
    on_invalid: OnInvalid | str
    lost_reward: float
    retries: int
    wait_s: float
    lease_ttl_s: float
    settle: Settle | None


class Desktops:
    """The client, the tasks and the spaces of environments."""

    def __init__(self, given: DesktopSettings) -> None:
        """Open a client unless there is one.

        Raises:
            ConfigError: an argument is wrong.
        """
        unknown = set(given) - set(DesktopSettings.__annotations__)
        if unknown:
            raise ConfigError(f"unknown argument {sorted(unknown)[0]!r}")
        width, height = self.size = _size(given.get("size", DEFAULT_SIZE))
        max_steps = given.get("max_steps", 100)
        if max_steps < 1 or given.get("retries", 0) < 0:
            raise ConfigError("max_steps is 1 or more, retries 0 or more")
        self.tasks = listed(given.get("task"))
        self.form: ActionForm = make_form(
            given.get("action_form", "dict"), self.size, given.get("grid", DEFAULT_GRID)
        )
        self.observation_space = spaces.Box(0, 255, (height, width, 3), np.uint8)
        self.lost_reward = given.get("lost_reward", math.nan)
        grammar = given.get("grammar") if given.get("action_form") == "text" else None
        self._options = EnvironmentOptions(
            max_steps=max_steps,
            retries=given.get("retries", 2),
            on_invalid=as_choice(OnInvalid, given.get("on_invalid", OnInvalid.NOOP), "on_invalid"),
            wait_s=given.get("wait_s", 600.0),
            lease_ttl_s=given.get("lease_ttl_s", 60.0),
            settle=given.get("settle"),
            observe=ObserveOptions(ImageFormat.PNG, size=self.size),
            actions=grammar,
            coordinates=given.get("coordinates") if grammar else None,
        )
        given_client = given.get("client")
        self._owned = given_client is None
        self.client = given_client or Client(given.get("hosts"))

    def environment(self, ticks: StepTicks | None = None) -> Environment:
        """Return an environment that leases nothing yet. ``ticks``: those that act together share them."""
        return Environment(self.client._inner, self._options, ticks=ticks)

    def ticks(self) -> StepTicks:
        """Return what puts steps that are begun at the same time into one request per host."""
        return StepTicks(self.client._inner._config.timeouts.step_s)

    def task(self, rng: np.random.Generator) -> Task | None:
        """Return the task of the next episode."""
        if not self.tasks:
            return None
        chosen: Task | None = self.tasks[int(rng.integers(len(self.tasks)))]
        return chosen

    def close(self) -> None:
        """Close the client if it is ours."""
        if self._owned:
            self.client.close()


def listed(task: Any) -> list[Task | None]:
    """Return the tasks that an argument stands for.

    Raises:
        ConfigError: a path leads nowhere, or it is no task.
    """
    if task is None:
        return []
    if isinstance(task, Mapping):
        return [task]
    found = as_tasks(task)
    if not isinstance(found, Iterable):
        raise ConfigError("tasks of an environment are a list, not an asynchronous generator")
    return list(found)


def _size(size: Any) -> Size:
    sides = tuple(size)
    if len(sides) != 2 or not all(isinstance(side, int) and 1 <= side <= 8192 for side in sides):
        raise ConfigError(f"size is (width, height) in pixels, not {size!r}")
    return sides[0], sides[1]
