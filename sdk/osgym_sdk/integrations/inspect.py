"""Inspect: desktops as the sandbox ``osgym``, for its ``computer()`` tool, its ``exec`` and files; our score.

>>> from inspect_ai import Task, eval
>>> from inspect_ai.solver import basic_agent
>>> from inspect_ai.tool import computer
>>> from osgym_sdk.integrations.inspect import desktop_score, samples
>>> task = Task(  # doctest: +SKIP
...     dataset=samples("tasks/"), solver=basic_agent(tools=[computer()]), scorer=desktop_score()
... )

Needs ``pip install 'osgym-sdk[inspect]'``. Inspect's ``computer()`` runs a program in its sandbox; here its
calls are read and done as actions, so that the image needs nothing for it.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from typing import Any, Literal, overload

from osgym_sdk._exceptions import (
    CommandNotStarted,
    ConfigError,
    EpisodeEnded,
    OSGymError,
    PathNotFound,
    PathRefused,
    TooLarge,
)
from osgym_sdk._extras import need_extra
from osgym_sdk._models.observation import Observation
from osgym_sdk.agents import INFEASIBLE
from osgym_sdk.agents._zoom import take_zooms
from osgym_sdk.integrations import _rollouts
from osgym_sdk.integrations._desktop import Desktop
from osgym_sdk.wire import ImageFormat, ObserveOptions

need_extra("inspect", "inspect_ai")

from inspect_ai.dataset import Sample  # noqa: E402 - after the check, whose error names the extra
from inspect_ai.scorer import Score, Scorer, Target, mean, scorer, stderr  # noqa: E402 - the same
from inspect_ai.solver import TaskState  # noqa: E402 - the same
from inspect_ai.util import (  # noqa: E402 - the same
    ExecResult,
    OutputLimitExceededError,
    SandboxEnvironment,
    SandboxUnavailableError,
    SandboxUserUnsupportedError,
    sandbox,
    sandboxenv,
)
from pydantic import BaseModel  # noqa: E402 - the same

__all__ = ["DesktopConfig", "DesktopSandbox", "desktop_score", "samples"]

COMPUTER_TOOL = "/opt/inspect/tool/computer_tool.py"
"""Inspect's program for its ``computer()``: never there, and never run."""
SIZE = (1366, 768)
"""Size of the screen in pixels that Inspect tells models with a computer tool of their own."""
TASK_KEY = "osgym_task"
MAX_COMMAND_S = 600
_MAX_FILE_BYTES = 64 * 1024 * 1024
_NUMBERS = {"coordinate": 2, "start_coordinate": 2, "region": 4, "scroll_amount": 1, "duration": 1}


class DesktopConfig(BaseModel, frozen=True, extra="allow"):
    """The configuration of the sandbox; further fields are those of :class:`osgym_sdk.EpisodeArguments`."""

    hosts: str | None = None
    """Hosts, separated by commas; ``OSGYM_HOSTS`` by default."""


def samples(tasks: Any, **config: Any) -> list[Sample]:
    """Return tasks as samples, each with its sandbox; ``config`` as in :class:`DesktopConfig`.

    Args:
        tasks: as for :meth:`osgym_sdk.Client.run`.

    Raises:
        ConfigError: there are none, or one is wrong.
    """
    return [
        Sample(
            input=_rollouts.instruction_of(task),
            id=str(task.get("id", index)),
            metadata={TASK_KEY: text},
            sandbox=("osgym", DesktopConfig(**config)),
        )
        for index, (task, text) in enumerate(_rollouts.rows(tasks))
    ]


@sandboxenv(name="osgym")
class DesktopSandbox(SandboxEnvironment):
    """Desktop that is set up with its sample's task."""

    def __init__(self, desktop: Desktop) -> None:
        super().__init__()
        self.desktop = desktop
        self._cursor: tuple[int, int] | None = None

    @classmethod
    async def sample_init(cls, task_name: str, config: Any, metadata: dict[str, Any]) -> dict[str, Any]:
        """Take a desktop.

        Raises:
            SandboxUnavailableError: none was to be had, or the task's set-up failed.
        """
        given = config if isinstance(config, DesktopConfig) else DesktopConfig()
        desktop = Desktop(
            given.hosts,
            observe=ObserveOptions(ImageFormat.PNG, size=SIZE),
            actions="anthropic",
            **(given.model_extra or {}),
        )
        try:
            await desktop.begin_async(metadata.get(TASK_KEY))
        except BaseException:
            await desktop.aclose()
            raise
        if desktop.failure is not None:
            raise SandboxUnavailableError(f"{desktop.failure.code}: {desktop.failure.message}")
        return {"default": cls(desktop)}

    @classmethod
    async def sample_cleanup(
        cls, task_name: str, config: Any, environments: dict[str, SandboxEnvironment], interrupted: bool
    ) -> None:
        """Give the desktops back."""
        for environment in environments.values():
            await environment.as_type(cls).desktop.aclose()

    @classmethod
    def config_deserialize(cls, config: dict[str, Any]) -> BaseModel:
        """Return the configuration of a log."""
        return DesktopConfig(**config)

    async def exec(
        self,
        cmd: list[str],
        input: str | bytes | None = None,
        cwd: str | None = None,
        env: dict[str, str] | None = None,
        user: str | None = None,
        timeout: int | None = None,
        timeout_retry: bool = True,
        concurrency: bool = True,
    ) -> ExecResult[str]:
        """Run a command in the desktop, as its user; the computer tool's are done as actions.

        Raises:
            SandboxUserUnsupportedError: as another user.
            SandboxUnavailableError: the desktop is gone.
            TimeoutError: its time was up; it was killed.
        """
        if user is not None:
            raise SandboxUserUnsupportedError("commands run as the desktop's user")
        if cmd[:2] == ["python3", COMPUTER_TOOL]:
            return ExecResult(True, 0, json.dumps(await self._computer(cmd[2:])), "")
        seconds = float(min(timeout or MAX_COMMAND_S, MAX_COMMAND_S))
        try:
            work = self.desktop.episode.execute(cmd, timeout_s=seconds, cwd=cwd, env=env, stdin=input)
            done = await self.desktop.wait(work)
        except (CommandNotStarted, PathNotFound) as exc:
            return ExecResult(False, 127, "", exc.message)
        except OSGymError as exc:
            raise _unavailable(exc) from exc
        if done.timed_out:
            raise TimeoutError(f"{cmd[0]}: the command took longer than {seconds:g} s")
        return ExecResult(done.returncode == 0, done.returncode, done.stdout, done.stderr)

    async def write_file(self, file: str, contents: str | bytes) -> None:
        """Write a file; what is relative lies below the user's home.

        Raises:
            PermissionError: it may not be written there, or it is a folder.
        """
        try:
            await self.desktop.wait(self.desktop.episode.write_file(file, contents))
        except PathRefused as exc:
            raise PermissionError(exc.message) from exc
        except OSGymError as exc:
            raise _unavailable(exc) from exc

    @overload
    async def read_file(self, file: str, text: Literal[True] = True) -> str: ...

    @overload
    async def read_file(self, file: str, text: Literal[False]) -> bytes: ...

    async def read_file(self, file: str, text: bool = True) -> str | bytes:
        """Return a file; what is relative lies below the user's home.

        Raises:
            FileNotFoundError, PermissionError, UnicodeDecodeError: as they say.
            OutputLimitExceededError: it has more than 64 MiB.
        """
        if file == COMPUTER_TOOL:  # how Inspect finds the sandbox that has it
            return "" if text else b""
        try:
            data = await self.desktop.wait(self.desktop.episode.read_file(file, max_bytes=_MAX_FILE_BYTES))
        except PathNotFound as exc:
            raise FileNotFoundError(exc.message) from exc
        except PathRefused as exc:
            raise PermissionError(exc.message) from exc
        except TooLarge as exc:
            raise OutputLimitExceededError("64 MiB", None) from exc
        except OSGymError as exc:
            raise _unavailable(exc) from exc
        return data.decode() if text else data

    async def _computer(self, arguments: Sequence[str]) -> dict[str, str]:
        """Do what Inspect's program is asked for, and return what it prints."""
        try:
            asked = read_call(arguments)
            words = await self.desktop.act_async(asked)
        except EpisodeEnded as exc:
            return {"error": exc.message}
        except ConfigError as exc:
            return {"error": exc.message}
        desktop = self.desktop
        if desktop.failure is not None:
            raise SandboxUnavailableError(f"{desktop.failure.code}: {desktop.failure.message}")
        obs = desktop.observation
        assert obs is not None, "a step has one"
        for done in obs.actions:
            self._cursor = (done["x"], done["y"]) if {"x", "y"} <= set(done) else self._cursor
        if words.startswith(("Refused", "Failed")):
            return {"error": words}
        if asked["action"] not in ("zoom", "cursor_position"):
            image = base64.b64encode(obs.png).decode()
            return {"output": "" if words == "Done." else words, "base64_image": image}
        [block] = obs.to_anthropic(cursor=self._cursor, zooms=await self._zooms(obs))
        content: Any = block["content"]
        if isinstance(content, str):
            return {"error" if block.get("is_error") else "output": content}
        return {"base64_image": str(content[0]["source"]["data"])}

    async def _zooms(self, obs: Observation) -> dict[str, bytes]:
        """Return the screen regions that the last call asked for, at the screen's own resolution.

        An episode that has ended has no screen any more; the caller then crops its last picture.

        Raises:
            SandboxUnavailableError: the desktop is gone.
        """
        if self.desktop.ended or obs.parsed is None:
            return {}
        try:
            return await self.desktop.wait(take_zooms(obs, obs.parsed.calls))
        except OSGymError as exc:
            raise _unavailable(exc) from exc


def read_call(arguments: Sequence[str]) -> dict[str, Any]:
    """Return the call of a computer tool from the command line that Inspect makes of it.

    Raises:
        ConfigError: it is not such a line.
    """
    if not arguments:
        raise ConfigError("the computer tool was called without an action")
    call: dict[str, Any] = {"action": arguments[0]}
    rest = list(arguments[1:])
    while rest:
        name, equals, value = rest.pop(0).partition("=")
        key = name.removeprefix("--")
        count = _NUMBERS.get(key)
        if not name.startswith("--") or (not equals and len(rest) < (count or 1)):
            raise ConfigError(f"the computer tool does not know {name[:60]!r}")
        if count is None:
            call[key] = value if equals else rest.pop(0)
            continue
        try:
            numbers = [int(rest.pop(0)) for _ in range(count)]
        except ValueError:
            raise ConfigError(f"{key}: not a whole number") from None
        call[key] = numbers if count > 1 else numbers[0]
    return call


@scorer(metrics=[mean(), stderr()])
def desktop_score() -> Scorer:
    """Score the sample's task by its own check; what could not be scored is in no mean.

    A model whose last words have ``[INFEASIBLE]`` in them says that the task cannot be done.
    """

    async def score(state: TaskState, target: Target) -> Score:
        desktop = sandbox().as_type(DesktopSandbox).desktop
        reward = await desktop.finish_async(feasible=INFEASIBLE not in state.output.completion)
        if reward is None:
            failure = desktop.failure
            said = "the task has no check" if failure is None else f"{failure.code}: {failure.message}"
            return Score.unscored(reason="scoring_failed", explanation=said)
        return Score(value=reward)

    return score


def _unavailable(error: OSGymError) -> Exception:
    """Return the error of Inspect for one of ours; a mistake of the caller stays what it is."""
    if error.error_class is None and not isinstance(error, EpisodeEnded):
        return error
    return SandboxUnavailableError(str(error))
