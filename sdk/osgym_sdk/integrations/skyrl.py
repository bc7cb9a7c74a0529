"""SkyRL: a desktop as a text environment of SkyRL Gym; screenshots as data URIs in its messages.

>>> import osgym_sdk.integrations.skyrl  # registers osgym
>>> config = {"hosts": "http://127.0.0.1:20000"}
>>> env = skyrl_gym.make("osgym", env_config=config, extras=row)  # doctest: +SKIP

Needs ``pip install 'osgym-sdk[skyrl]'``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from osgym_sdk._extras import need_extra
from osgym_sdk.integrations import _rollouts
from osgym_sdk.integrations._desktop import Desktop

need_extra("skyrl", "skyrl_gym")

import skyrl_gym  # noqa: E402 - after the check, whose error names the extra
from skyrl_gym.envs.base_text_env import BaseTextEnv, BaseTextEnvStepOutput  # noqa: E402 - the same

__all__ = ["ENV_ID", "DesktopTextEnv", "rows"]

ENV_ID = "osgym"


def rows(tasks: Any) -> list[dict[str, Any]]:
    """Return the rows of a SkyRL data set: ``prompt``, ``env_class``, and the task as ``extra_info``.

    Args:
        tasks: as for :meth:`osgym_sdk.Client.run`.

    Raises:
        ConfigError: there are none, or one is wrong.
    """
    return [
        {
            "prompt": [
                {"role": "system", "content": _rollouts.HOW_TO_ACT},
                {"role": "user", "content": _rollouts.instruction_of(task)},
            ],
            "env_class": ENV_ID,
            "extra_info": {"task": text},
        }
        for task, text in _rollouts.rows(tasks)
    ]


class DesktopTextEnv(BaseTextEnv):  # type: ignore[misc,unused-ignore] # theirs has no types
    """One desktop. It is called from SkyRL's threads.

    SkyRL has no reward that is absent. Where there is none, ``metadata["valid"]`` is False and the reward is
    0: filter such rollouts out before the advantages.
    """

    def __init__(
        self, env_config: Mapping[str, Any] | None = None, extras: Mapping[str, Any] | None = None
    ) -> None:
        """Lease nothing yet.

        Args:
            env_config: ``hosts``, ``sees``, ``actions``, ``size``, ``max_steps``, ``wait_s``, ...
            extras: of the row: ``extra_info["task"]``, and ``max_turns``.

        Raises:
            ConfigError: an argument is wrong.
        """
        super().__init__()
        given, row = dict(env_config or {}), dict(extras or {})
        hosts = given.pop("hosts", None)
        self._sees = given.pop("sees", "image")
        self.max_turns = int(row.get("max_turns", given.get("max_steps", 30)))
        given["max_steps"] = self.max_turns
        self._task = (row.get("extra_info") or {}).get("task")
        self._desktop = Desktop(hosts, **_rollouts.text_options(self._sees, **given))

    def init(self, prompt: list[dict[str, Any]]) -> tuple[list[dict[str, Any]], dict[str, Any]]:
        """Take a desktop, and return the prompt with its screen."""
        self._desktop.begin(self._task)
        if self._desktop.ended:
            return prompt, self._metadata()
        screen = self._desktop.shown(self._sees)
        return [*prompt, {"role": "user", "content": screen}], self._metadata()

    def step(self, action: str) -> BaseTextEnvStepOutput:
        """Do what the model said. The reward is 0 until the end, then the task's score."""
        self.turns += 1
        observations: list[dict[str, Any]] = []
        if not self._desktop.ended:
            words = self._desktop.act(action)
            if not self._desktop.ended:
                observations = [{"role": "user", "content": self._desktop.shown(self._sees, words)}]
        reward = self._desktop.reward
        return BaseTextEnvStepOutput(
            observations=observations,
            reward=0.0 if reward is None else reward,
            done=self._desktop.ended,
            metadata=self._metadata(),
        )

    def close(self) -> None:
        """Give the desktop back. Idempotent."""
        self._desktop.close()

    def get_metrics(self) -> dict[str, Any]:
        """Return what is counted of the episode."""
        return {"valid": float(self._desktop.failure is None), "steps": float(self._desktop.steps)}

    def _metadata(self) -> dict[str, Any]:
        failure = self._desktop.failure
        found: dict[str, Any] = {"valid": failure is None, "steps": self._desktop.steps}
        if failure is not None:
            found |= {"failure": failure.code, "failure_message": failure.message}
        return found


if ENV_ID not in skyrl_gym.registry:
    skyrl_gym.register(id=ENV_ID, entry_point="osgym_sdk.integrations.skyrl:DesktopTextEnv")
