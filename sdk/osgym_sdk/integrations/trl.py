"""TRL: desktops as the environment of ``GRPOTrainer(environment_factory=...)``.

>>> from osgym_sdk.integrations.trl import DesktopEnvironment, rows
>>> data = Dataset.from_list(rows("tasks/"))  # doctest: +SKIP
>>> trainer = GRPOTrainer(  # doctest: +SKIP
...     model, args=args, train_dataset=data, environment_factory=DesktopEnvironment
... )

Needs ``pip install 'osgym-sdk[trl]'``. Public methods but ``reset`` and
``get_reward`` are tools of the model.
"""

from __future__ import annotations

import concurrent.futures
from typing import Any

from osgym_sdk._exceptions import EpisodeEnded
from osgym_sdk._extras import need_extra
from osgym_sdk._sync.client import Client
from osgym_sdk.integrations import _rollouts
from osgym_sdk.integrations._desktop import Desktop, Hosts

need_extra("trl", "trl")

__all__ = ["DesktopEnvironment", "rows"]

_BEGIN_S = 1200.0
"""More than ``wait_s`` and a task's set-up take: what takes longer is a fault."""


def rows(tasks: Any) -> list[dict[str, Any]]:
    """Return the rows of a data set: ``prompt`` (what a task asks for) and ``task`` (it, as JSON).

    Args:
        tasks: as for :meth:`osgym_sdk.Client.run`.

    Raises:
        ConfigError: there are none, or one is wrong.
    """
    return [
        {"prompt": [{"role": "user", "content": _rollouts.instruction_of(task)}], "task": text}
        for task, text in _rollouts.rows(tasks)
    ]


class DesktopEnvironment:
    """One desktop at a time, with tools for mouse and keyboard, and the task's score as its reward.

    ``reset`` begins and does not wait, since a trainer resets its environments one after another; the first
    tool waits. A lost desktop, or a task that could not be scored, has the reward None, which TRL leaves out
    of the group's baseline and of the update.
    """

    def __init__(
        self, hosts: Hosts = None, client: Client | None = None, sees: str = "elements", **options: Any
    ) -> None:
        """Lease nothing yet; for arguments use ``functools.partial(DesktopEnvironment, sees="image")``.

        Args:
            hosts: as for :class:`osgym_sdk.Client`; else ``OSGYM_HOSTS``.
            client: one that is there already.
            sees: what tools return: ``"elements"`` (text: what is on the screen, from the accessibility
                tree) or ``"image"`` (a screenshot with each, for models that take images).
            options: ``max_steps``, ``observe``, ``settle``, ``wait_s``, ``retries``, ...; with
                ``observe=ObserveOptions(size=(1280, 720))`` points are pixels of that image.

        Raises:
            ConfigError: an argument is wrong.
        """
        self._sees = _rollouts.check_sees(sees)
        self._desktop = Desktop(hosts, client, **options)
        self._begun: concurrent.futures.Future[None] | None = None

    def reset(self, task: Any = None, prompt: Any = None, **row: Any) -> str | None:
        """Give the desktop back and begin with the row's task.

        Args:
            task: an object, its JSON, or the path of its file; None: a clean desktop, which scores nothing.
            prompt: of the row; without one the task's instruction is returned.
            row: its other columns, which are not used.

        Raises:
            ConfigError: the task is none.
        """
        loaded = _rollouts.task_of(task)
        self._close()
        self._begun = self._desktop.begin_soon(loaded)
        return None if prompt else _rollouts.instruction_of(loaded)

    def get_reward(self) -> float | None:
        """Score the task as the desktop stands and give it back; None where there is no score."""
        self._wait()
        return self._desktop.finish()

    def look(self) -> Any:
        """Look at the screen.

        Returns:
            What is on the screen.
        """
        return self._do({"op": "screenshot"})

    def click(self, x: int, y: int, button: str = "left", count: int = 1) -> Any:
        """Click at a point of the screen.

        Args:
            x: Pixels from the left edge.
            y: Pixels from the top edge.
            button: left, middle or right.
            count: 1 for a click, 2 for a double click, 3 for a triple click.

        Returns:
            What is on the screen afterwards.
        """
        return self._do({"op": "click", **self._at(x, y), "button": button, "count": count})

    def drag(self, from_x: int, from_y: int, to_x: int, to_y: int) -> Any:
        """Drag from one point to another with the left button.

        Args:
            from_x: Pixels from the left edge, where the drag begins.
            from_y: Pixels from the top edge, where the drag begins.
            to_x: Pixels from the left edge, where it ends.
            to_y: Pixels from the top edge, where it ends.

        Returns:
            What is on the screen afterwards.
        """
        start, end = self._at(from_x, from_y), self._at(to_x, to_y)
        return self._do({"op": "drag", "path": [[start["x"], start["y"]], [end["x"], end["y"]]]})

    def scroll(self, x: int, y: int, clicks: int) -> Any:
        """Turn the wheel at a point of the screen.

        Args:
            x: Pixels from the left edge.
            y: Pixels from the top edge.
            clicks: Clicks of the wheel; more than 0 scrolls down, less scrolls up.

        Returns:
            What is on the screen afterwards.
        """
        return self._do({"op": "scroll", **self._at(x, y), "dy": clicks})

    def type_text(self, text: str) -> Any:
        """Type a text where the keyboard's focus is.

        Args:
            text: The text; a line break presses Enter.

        Returns:
            What is on the screen afterwards.
        """
        return self._do({"op": "type", "text": text})

    def press_keys(self, keys: list[str]) -> Any:
        """Press keys together.

        Args:
            keys: Their names, such as ["ctrl", "s"] or ["enter"].

        Returns:
            What is on the screen afterwards.
        """
        return self._do({"op": "key", "keys": keys})

    def finish(self, feasible: bool = True) -> Any:
        """End the task.

        Args:
            feasible: false to say that the task cannot be done on this computer.

        Returns:
            That it has ended.
        """
        return self._do({"op": "done" if feasible else "fail"})

    def _at(self, x: int, y: int) -> dict[str, int]:
        """Turn a point of the image that the model sees into one of the screen."""
        self._wait()
        obs = self._desktop.observation
        if obs is None or self._sees == "elements":
            return {"x": x, "y": y}
        (across, down), (width, height) = obs.screen, obs.size
        return {"x": x * across // width, "y": y * down // height}

    def _do(self, action: dict[str, Any]) -> Any:
        self._wait()
        words = self._desktop.act(action)
        obs = self._desktop.observation
        if self._desktop.ended or obs is None:
            return words
        if self._sees == "image":
            return [{"type": "image", "image": obs.image}, {"type": "text", "text": words}]
        return f"{words}\n{self._desktop.elements()}"

    def _wait(self) -> None:
        if self._begun is None:
            raise EpisodeEnded("no episode was started: call reset() first")
        self._begun.result(_BEGIN_S)

    def _close(self) -> None:
        """Give the desktop back. Idempotent; the process's end does it too."""
        if self._begun is not None:
            concurrent.futures.wait([self._begun], _BEGIN_S)
        self._desktop.close()
