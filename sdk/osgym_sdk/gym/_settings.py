"""The arguments that both environments have, and what is made of them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from gymnasium import spaces

from osgym_sdk._batch.options import OnInvalid
from osgym_sdk._batch.ready import StepTicks
from osgym_sdk._environment import Environment, EnvironmentOptions
from osgym_sdk._episode.plan import EpisodeArguments
from osgym_sdk._exceptions import ConfigError
from osgym_sdk._inputs.options import Task
from osgym_sdk._inputs.tasks import as_tasks
from osgym_sdk._sync.client import Client
from osgym_sdk.gym.actions import ActionForm, Size, make_form
from osgym_sdk.wire import ImageFormat, ObserveOptions

DEFAULT_SIZE: Size = (640, 360)
DEFAULT_GRID = (32, 18)


class DesktopSettings(EpisodeArguments, total=False):
    """Arguments of :class:`DesktopEnv` and :class:`DesktopVectorEnv`, with those of their episodes.

    ``actions`` is ``grammar`` here, and ``observe`` follows from ``size``: neither can be given.
    """

    hosts: str | Sequence[str] | None
    """Hosts, as for :class:`osgym_sdk.Client`."""
    client: Client | None
    """Client to use in place of one of its own; it is not closed with the environment."""
    task: Any
    """A task, the path of one, of a folder or a pattern, or a list of them, of which each reset takes one at
    random; None: a clean desktop, which scores nothing."""
    size: Size
    """Width and height of the observation in pixels; the host scales."""
    action_form: str
    """``"dict"``, ``"discrete"`` or ``"text"``."""
    grid: tuple[int, int]
    """Columns and rows that the discrete form clicks into."""
    grammar: str | None
    """Grammar of the text form, as ``actions`` of an episode."""
    on_invalid: OnInvalid | str
    """Consequence of a refused action: ``"noop"`` (it counts as a step, ``info["refused"]`` says why),
    ``"end"`` (scored as it stands), ``"error"`` (raised)."""
    lost_reward: float
    """Reward of a step that has none because the infrastructure failed; NaN by default."""
    retries: int
    """Number of further replicas that a reset tries when the infrastructure failed under it."""


_KNOWN = DesktopSettings.__optional_keys__ - {"actions", "observe"}
_OF_ENVIRONMENT = (EpisodeArguments.__optional_keys__ | {"on_invalid", "retries"}) - {"coordinates"}


class Desktops:
    """The client, the tasks and the spaces of environments."""

    def __init__(self, given: DesktopSettings) -> None:
        """Open a client unless there is one. Raises ConfigError if an argument is wrong."""
        if unknown := given.keys() - _KNOWN:
            raise ConfigError(f"unknown argument {sorted(unknown)[0]!r}")
        width, height = self.size = _size(given.get("size", DEFAULT_SIZE))
        self.tasks = listed(given.get("task"))
        self.form: ActionForm = make_form(
            given.get("action_form", "dict"), self.size, given.get("grid", DEFAULT_GRID)
        )
        self.observation_space = spaces.Box(0, 255, (height, width, 3), np.uint8)
        self.lost_reward = given.get("lost_reward", math.nan)
        options: dict[str, Any] = {name: given[name] for name in _OF_ENVIRONMENT & given.keys()}  # type: ignore[literal-required] # names of its own
        options["observe"] = ObserveOptions(ImageFormat.PNG, size=self.size)
        if given.get("action_form") == "text" and given.get("grammar"):
            options |= {"actions": given["grammar"], "coordinates": given.get("coordinates")}
        self._options = EnvironmentOptions.read(options)
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
        raise ConfigError("tasks of an environment must be a list, not an asynchronous generator")
    return list(found)


def _size(size: Any) -> Size:
    sides = tuple(size)
    if len(sides) != 2 or not all(isinstance(side, int) and 1 <= side <= 8192 for side in sides):
        raise ConfigError(f"size must be (width, height) in pixels, not {size!r}")
    return sides[0], sides[1]
