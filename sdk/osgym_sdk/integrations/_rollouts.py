"""One rollout on one desktop, for all trainers: its losses are data and never a reward of 0.

Frameworks gather many rollouts at once, and one exception ends them all. So whatever the infrastructure or a
task does here is kept as the rollout's failure; only mistakes of the caller are raised.
"""

from __future__ import annotations

import json
import logging
from collections.abc import AsyncIterable, Mapping
from typing import TYPE_CHECKING, Any

from osgym_sdk._client import AsyncClient
from osgym_sdk._environment import Environment, EnvironmentOptions, Transition
from osgym_sdk._episode.episode import AsyncEpisode
from osgym_sdk._exceptions import ConfigError, EpisodeEnded, EpisodeLost, OSGymError, ReachError
from osgym_sdk._inputs.actions import Actions
from osgym_sdk._inputs.options import as_task
from osgym_sdk._inputs.tasks import as_tasks
from osgym_sdk._models.evaluation import Failure
from osgym_sdk._models.observation import Observation
from osgym_sdk._models.provider_forms import fault
from osgym_sdk.wire import ObserveOptions

if TYPE_CHECKING:
    from osgym_protocol.grammars import Coordinates

_LOG = logging.getLogger("osgym.sdk")


def task_of(given: Any) -> dict[str, Any] | None:
    """Return a task of a data set's row: an object, its JSON as text, or the path of its file.

    Raises:
        ConfigError: it is none of these.
    """
    if isinstance(given, str) and given.lstrip()[:1] == "{":
        try:
            given = json.loads(given)
        except ValueError as exc:
            raise ConfigError(f"task: the text is not JSON: {exc}") from exc
    return as_task(given)


def rows(tasks: Any) -> list[tuple[dict[str, Any], str]]:
    """Return tasks with their JSON, for data sets whose columns have one type.

    Args:
        tasks: as for :meth:`osgym_sdk.Client.run`: tasks, files, folders, patterns.

    Raises:
        ConfigError: there are none, or one is wrong.
    """
    found = as_tasks(tasks)
    if isinstance(found, AsyncIterable):
        raise ConfigError("tasks of a data set must be a list, not an asynchronous generator")
    loaded = [task for task in (task_of(given) for given in found) if task is not None]
    if not loaded:
        raise ConfigError("tasks: the list is empty")
    return [(task, json.dumps(task, sort_keys=True)) for task in loaded]


def instruction_of(task: Mapping[str, Any] | None) -> str:
    """Return what a task asks for; empty where there is none."""
    return "" if task is None else str(task.get("instruction", ""))


class Rollout:
    """A rollout that is begun, acted in, and ended with a reward or with a failure; one at a time.

    Attributes:
        observation: the newest; None before the first desktop.
        reward: the score; None until the end, and where there is none.
        failure: why an ended rollout has no reward.
        ended: it takes no more actions.
        steps: how many actions were taken.
    """

    def __init__(self, client: AsyncClient, options: EnvironmentOptions) -> None:
        self._environment = Environment(client, options)
        self.observation: Observation | None = None
        self.reward: float | None = None
        self.failure: Failure | None = None
        self.ended = True
        self.steps = 0

    @property
    def episode(self) -> AsyncEpisode:
        """The open episode. Raises EpisodeEnded if there is none."""
        episode = self._environment.episode
        if episode is None:
            raise EpisodeEnded("the rollout has ended" if self.failure is None else self.failure.message)
        return episode

    @property
    def lost(self) -> bool:
        """True: the infrastructure, the task or its check failed, and the rollout is no training data."""
        return self.failure is not None

    async def begin(self, task: Any) -> None:
        """Take a fresh desktop and set the task up; what fails is this rollout's failure.

        Raises:
            ConfigError: the task is none, or an argument is wrong.
        """
        self.observation = self.reward = self.failure = None
        self.ended, self.steps = True, 0
        loaded = task_of(task)
        try:
            self.observation = await self._environment.reset(loaded)
        except OSGymError as exc:
            if exc.error_class is None:
                raise
            self._lose(exc)
            return
        self.ended = False

    async def act(self, actions: Actions) -> str:
        """Act, and return in words what the picture cannot show: a refusal, a failed action, an end.

        Raises:
            EpisodeEnded: it has ended, or was not begun.
        """
        if self.ended:
            raise EpisodeEnded("the rollout has ended" if self.failure is None else self.failure.message)
        made = await self._environment.step(actions)
        self.steps += 1
        self._take(made)
        return said(made)

    async def finish(self, feasible: bool = True) -> None:
        """Score it as it stands, where its agent did not end it itself. Idempotent.

        Args:
            feasible: False: the agent said, in words of its own, that the task cannot be done.
        """
        if not self.ended:
            self._take(await self._environment.finish(feasible))

    async def elements(self, max_lines: int = 200) -> str:
        """Return the screen as text: a line for each element with its place and size in pixels of the screen.

        Raises:
            EpisodeEnded: it has ended, or was not begun.
        """
        try:
            return (await self.episode.a11y()).to_text(max_lines=max_lines)
        except ReachError as exc:
            return f"The elements of the screen are not available: {exc.message}"
        except OSGymError as exc:
            if exc.error_class is None:
                raise
            if isinstance(exc, EpisodeLost) and exc.by_policy:
                self._take(await self._environment.finish())
                return "The episode has ended."
            await self.aclose()
            self._lose(exc)
            return "The desktop was lost."

    async def aclose(self) -> None:
        """Give the desktop back, without a score. Idempotent."""
        self.ended = True
        try:
            await self._environment.aclose()
        except OSGymError as exc:  # its lease runs out by itself
            _LOG.info("a rollout could not be closed: %s", exc)

    def _take(self, made: Transition) -> None:
        self.observation = made.observation
        self.ended, self.reward, self.failure = made.ended, made.reward, made.failure

    def _lose(self, error: OSGymError) -> None:
        self.ended, self.failure = True, Failure.of(error)
        _LOG.warning("a rollout has no reward: %s", error)


def said(made: Transition) -> str:
    """Return in words what a step's picture does not show."""
    if made.failure is not None:
        return "The desktop was lost."
    words = [f"The action was refused and nothing was done: {made.refused}"] if made.refused else []
    if not made.refused and (why := fault(made.observation, None)):
        words.append(f"Failed: {why}")
    if made.ended:
        words.append("The episode has ended.")
    return " ".join(words) or "Done."


HOW_TO_ACT = (
    "You operate a Linux desktop. Answer with one action and nothing else, in one of these forms; points are "
    "pixels from the upper left corner:\n"
    "click(x,y)  left_double(x,y)  right_single(x,y)  drag(x1,y1,x2,y2)  scroll(x,y,clicks)\n"
    "type(text)  press(enter)  hotkey(ctrl,s)  wait()\n"
    "finish() when the task is done, call_user() when it cannot be done on this computer. "
    "More than 0 clicks scroll up, less scroll down."
)
"""The system prompt where a data set has none: OSGym's action strings."""


def text_options(
    sees: str,
    actions: str = "osgym",
    coordinates: Coordinates | None = None,
    size: tuple[int, int] | None = None,
    **options: Any,
) -> dict[str, Any]:
    """Return the options of an environment whose actions are what a model said.

    Args:
        sees: ``image`` or ``elements``.
        actions, coordinates: how its words are read, as for :meth:`AsyncClient.episode`; of OSGym's own
            strings the points are pixels of the image that is shown.
        size: width and height of that image in pixels; the host scales.
        options: the others.

    Raises:
        ConfigError: an argument is wrong.
    """
    check_sees(sees)
    if size is not None:
        options.setdefault("observe", ObserveOptions(size=(size[0], size[1])))
        if coordinates is None and actions == "osgym" and sees == "image":
            coordinates = (size[0], size[1])
    return {"actions": actions, "coordinates": coordinates, **options}


async def shown(rollout: Rollout, sees: str, words: str = "") -> list[dict[str, Any]]:
    """Return the content of a user's message for the newest screen: an image, or its elements as text.

    Args:
        rollout: one that has not ended.
        sees: ``image`` or ``elements``.
        words: what is said before it.
    """
    if sees == "elements":
        elements = await rollout.elements()
        return [{"type": "text", "text": f"{words}\n{elements}" if words else elements}]
    assert rollout.observation is not None, "an open rollout must have an observation"
    said: list[dict[str, Any]] = [{"type": "text", "text": words}] if words else []
    return [*said, {"type": "image_url", "image_url": {"url": rollout.observation.data_url}}]


def check_sees(sees: str) -> str:
    """Check what a model is shown. Raises ConfigError if it is neither ``image`` nor ``elements``."""
    if sees not in ("elements", "image"):
        raise ConfigError(f"sees: unknown value {str(sees)[:60]!r}; valid values: elements, image")
    return sees
