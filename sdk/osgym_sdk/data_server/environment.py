"""OSGym's client-side environment over the SDK: a coroutine, and nothing of it is kept twice."""

from __future__ import annotations

import random
import re
import uuid
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from osgym_sdk._client import AsyncClient
from osgym_sdk._environment import Environment, EnvironmentOptions
from osgym_sdk._episode.plan import EpisodeArguments
from osgym_sdk._exceptions import ConfigError
from osgym_sdk._inputs.options import Task, as_task
from osgym_sdk._inputs.tasks import task_files
from osgym_sdk.data_server.history import History
from osgym_sdk.wire import ImageFormat, ObserveOptions

VLM_SIZE = (1260, 700)
"""Size of the screenshots in prompts; as OSGym's client has it."""
JPEG_QUALITY = 80
"""Quality of the screenshots in prompts; as OSGym's client has it."""
MAX_SAID_CHARS = 20_000
"""Length of one answer of a model that is kept in the prompt."""
_OSGYM_NAMES = {"max_step": "max_steps", "timeout": "lease_ttl_s"}
"""OSGym's names of our options."""
_OPTIONS = EpisodeArguments.__optional_keys__
_THINK = re.compile(r"<\|think_start\|>(.*?)<\|think_end\|>", re.DOTALL)
_ACTION = re.compile(r"<\|action_start\|>(.*?)<\|action_end\|>", re.DOTALL)

Returned = tuple[dict[str, Any], dict[str, Any]]
"""Return value of the environment, and ``{"uid": episode}``."""


class OSGymEnv:
    """One environment of a :class:`MultiTurnDataloader`.

    Args:
        env_config: ``server_url`` (or several, separated by commas); ``json_dir``, a folder of task files, or
            ``tasks``, a list of tasks, of which each reset takes one at random; ``max_step`` (100): the
            episode is scored as it stands after so many; ``max_hist`` (0: all): the newest screenshots that
            a prompt has; ``timeout`` (60): seconds that a host keeps the desktop without hearing from us;
            ``img_w``, ``img_h`` are not needed: the host says. Options of
            :class:`osgym_sdk.EpisodeArguments` are taken too.
        worker_id: its number, for the choice of tasks.
        client: of the dataloader, which closes it.

    Raises:
        ConfigError: there are no tasks.
    """

    def __init__(
        self, env_config: Mapping[str, Any], worker_id: int = 0, client: AsyncClient | None = None
    ) -> None:
        self._arguments = (env_config, worker_id, client)
        self._tasks = _tasks(env_config)
        self._max_hist = int(env_config.get("max_hist") or 0)
        self._owned = client is None
        self._client = client or AsyncClient(env_config.get("server_url"))
        self._rng = random.Random(env_config.get("seed", uuid.uuid4().int) + worker_id)  # noqa: S311 - tasks
        self._environment = Environment(
            self._client,
            EnvironmentOptions.read(
                {
                    **{name: env_config[name] for name in _OPTIONS & env_config.keys()},
                    **{ours: env_config[name] for name, ours in _OSGYM_NAMES.items() if name in env_config},
                    "observe": ObserveOptions(ImageFormat.JPEG, quality=JPEG_QUALITY, size=VLM_SIZE),
                    "actions": "osgym",
                    "coordinates": "norm1000",
                }
            ),
        )
        self._history = History("")
        self._uid = ""

    async def reset(self) -> Returned:
        """Begin an episode on a fresh replica.

        Returns:
            ``{"obs": Prompt, "done": False, "is_init": True}`` and ``{"uid": ...}``.

        Raises:
            OSGymError: none was to be had.
        """
        task = self._rng.choice(self._tasks)
        obs = await self._environment.reset(task)
        loaded = as_task(task) or {}
        self._history = History(str(loaded.get("instruction", "")), [bytes(obs.data)])
        self._uid = str(uuid.uuid4())
        ret = {"obs": self._prompt(), "done": False, "is_init": True}
        return ret, {"uid": self._uid}

    async def step(self, action: str) -> Returned:
        """Do what a model said; coordinates are thousandths of the screen.

        Returns:
            ``prev_obs``, ``action``, ``obs``, ``reward`` (0 until the end), ``done``, ``is_init`` False;
            ``refused``: why nothing was done; ``valid``: False where the episode ended without a reward,
            which is then 0 here, and no sample has it.

        Raises:
            EpisodeEnded: reset first.
        """
        said = cleaned(action)
        before = self._prompt()
        made = await self._environment.step(action)
        self._history.parts += [said, bytes(made.observation.data)]
        ret = {
            "prev_obs": before,
            "action": said,
            "obs": self._prompt(),
            "reward": made.reward or 0.0,
            "done": made.ended,
            "is_init": False,
            "refused": made.refused,
            "valid": made.failure is None,
        }
        return ret, {"uid": self._uid}

    async def aclose(self) -> None:
        """Give the replica back. Idempotent."""
        await self._environment.aclose()
        if self._owned:
            await self._client.aclose()

    async def close(self) -> None:
        """Deprecated: call :meth:`aclose`."""
        warnings.warn("OSGymEnv.close() is now aclose()", DeprecationWarning, stacklevel=2)
        await self.aclose()

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), self._arguments

    def _prompt(self) -> Any:
        return self._history.prompt(self._max_hist)


def cleaned(said: str) -> str:
    """Return an answer of a model as it stands in prompts: its thought and its action between their marks."""
    think, action = _THINK.search(said), _ACTION.search(said)
    thought = think[1].strip() if think else ""
    act = action[1].strip() if action else said.strip()
    marked = f"<|think_start|>{thought}<|think_end|><|action_start|>{act}<|action_end|>"
    return marked[:MAX_SAID_CHARS]


def _tasks(env_config: Mapping[str, Any]) -> list[Task]:
    if env_config.get("tasks"):
        return list(env_config["tasks"])
    folder = env_config.get("json_dir")
    if folder is None:
        raise ConfigError("env_config needs json_dir, a folder of task files, or tasks, a list")
    try:
        return [*task_files(Path(folder))]
    except (TypeError, ConfigError) as exc:
        raise ConfigError(f"json_dir: {exc}") from exc
