"""verifiers (Prime Intellect): desktops as a taskset and an environment, found as ``osgym-verifiers``.

``vf-eval osgym-verifiers --env.taskset.tasks tasks/ -m MODEL`` plays on ``OSGYM_HOSTS``. In Python:

>>> from osgym_sdk.integrations.verifiers import environment
>>> env = environment("tasks/", hosts="http://127.0.0.1:20000")  # doctest: +SKIP
>>> async with env.serving():  # doctest: +SKIP
...     episode = await env.run_episode(next(iter(env.taskset)), context)

Needs ``pip install 'osgym-sdk[verifiers]'``. Screenshots go to the model as ``image_url`` of user's
messages, not through MCP, whose calls are repeated without saying so.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from osgym_sdk._episode.plan import EpisodeArguments
from osgym_sdk._extras import need_extra
from osgym_sdk.integrations import _rollouts
from osgym_sdk.integrations._desktop import Desktop

need_extra("verifiers", "verifiers")

import verifiers.v1 as vf  # noqa: E402 - after the check, whose error names the extra

__all__ = ["DesktopEnv", "DesktopEnvConfig", "DesktopTask", "DesktopTaskset", "environment"]

TASKSET_ID = "osgym-verifiers"


class DesktopData(vf.TaskData):
    """A task of a desktop."""

    desktop_task: str
    """The task as JSON."""


class DesktopTask(vf.Task[DesktopData, vf.State, vf.TaskConfig]):
    """Scored by its desktop, at the end of the environment's ``run``."""


class DesktopTasksetConfig(vf.TasksetConfig):
    """Which tasks there are."""

    tasks: str = "tasks"
    """A task's file, a folder, or a pattern."""


class DesktopTaskset(vf.Taskset[DesktopTask, DesktopTasksetConfig]):
    """The tasks of a folder. The prompt stays with the environment, which shows the screen beside it."""

    def load(self) -> Iterator[DesktopTask]:
        """Yield them.

        Raises:
            ConfigError: there are none, or one is wrong.
        """
        for task, text in _rollouts.rows(self.config.tasks):
            data = DesktopData(
                id=str(task.get("id", "")) or None,
                name=str(task.get("id", "")) or None,
                description=_rollouts.instruction_of(task),
                system_prompt=_rollouts.HOW_TO_ACT,
                desktop_task=text,
            )
            yield DesktopTask(data, self.config.task)


class DesktopEnvConfig(vf.EnvConfig):
    """The agent, and the desktops that it plays on."""

    agent: vf.AgentConfig = vf.AgentConfig(harness={"id": "null"}, runtime=vf.SubprocessConfig())
    """Agent that only talks; no part of it runs in a sandbox."""
    retries: vf.RetryConfig = vf.RetryConfig(rules=[vf.RetryRule(type="SandboxError", max_retries=2)])
    """A rollout whose desktop was lost begins anew on a fresh one."""
    hosts: str | None = None
    """Hosts, separated by commas; ``OSGYM_HOSTS`` by default."""
    sees: str = "image"
    """``image`` or ``elements`` (text of the accessibility tree)."""
    actions: str = "osgym"
    """The grammar of the model's words; ``auto`` for those of providers."""
    size: tuple[int, int] | None = None
    """Size of the screenshot in pixels."""
    max_steps: int = 30
    """Number of steps after which the task is scored as it stands."""
    lease_ttl_s: float = 60.0
    """Time without a sign of the client after which a host takes the desktop back."""


class DesktopEnv(vf.Env[DesktopEnvConfig]):
    """The agent is shown the screen, says what to do, and is shown what came of it, until the task ends."""

    async def run(self, task: Any, agents: Any) -> None:
        """Play one task.

        Raises:
            SandboxError: the desktop was lost, or the task could not be scored: the rollout has no reward.
        """
        config = self.config
        episode = config.model_dump(include=EpisodeArguments.__optional_keys__)
        desktop = Desktop(config.hosts, **_rollouts.text_options(config.sees, size=config.size, **episode))
        try:
            await desktop.begin_async(task.data.desktop_task)
            _check(desktop)
            async with agents.agent.interaction(task) as interaction:
                words = task.data.description or ""
                while not desktop.ended:
                    content = await desktop.shown_async(config.sees, words)
                    _check(desktop)
                    segment = await interaction.turn([{"role": "user", "content": content}])
                    if segment.terminated:
                        break
                    words = await desktop.act_async(segment.last_reply)
                if interaction.trace.errors:  # the model's server failed: that says nothing of the model
                    return
                reward = await desktop.finish_async()
                _check(desktop)
            if reward is not None:
                interaction.trace.record_reward("score", reward)
            interaction.trace.info["desktop_steps"] = desktop.steps
        finally:
            await desktop.aclose()


def environment(tasks: str, **config: Any) -> DesktopEnv:
    """Return the environment of a folder of tasks; ``config`` as in :class:`DesktopEnvConfig`."""
    taskset = DesktopTasksetConfig(id=TASKSET_ID, tasks=tasks)
    return DesktopEnv(DesktopEnvConfig(taskset=taskset, **config))


def _check(desktop: Desktop) -> None:
    if desktop.failure is not None:
        raise vf.SandboxError(f"{desktop.failure.code}: {desktop.failure.message}")
