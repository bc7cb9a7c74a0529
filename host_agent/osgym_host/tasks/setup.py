"""Setup steps: what brings a clean desktop into the state a task starts from."""

from __future__ import annotations

import asyncio
import base64
import binascii
from collections.abc import Sequence
from typing import assert_never

from osgym_host.guest import GuestClient, GuestRefused
from osgym_host.tasks.context import TaskContext, remaining_s
from osgym_host.tasks.errors import RefusedByPolicy, SetupFailed, UnsupportedTask
from osgym_host.tasks.schema import (
    DownloadStep,
    ExecuteParameters,
    ExecuteStep,
    ExecuteVerifiedStep,
    LaunchStep,
    OpenStep,
    SleepStep,
    Step,
    Task,
    UnknownStep,
    Until,
    Upload,
    UploadStep,
    WallpaperStep,
    WindowStep,
)

QUIET_TIMEOUT_S = 5.0
UNTIL_INTERVAL_S = 0.3
"""How often a command with ``until`` is repeated; OSWorld's own pause."""
COMMAND_TIMEOUT_S = 130.0
"""The guest ends a command after 120 s."""


async def run_setup(task: Task, guest: GuestClient, ctx: TaskContext, deadline: float) -> None:
    """Carry out the task's ``config`` on a clean replica, then wait for a quiet desktop.

    Args:
        deadline: in ``asyncio.get_running_loop().time()``.

    Raises:
        TaskError: with ``error_class`` ``task`` or ``infra``; the replica is then of no use.
        GuestError: the replica is gone or does not answer.
    """
    if not task.config:
        return
    await run_steps(task.config, task.safe_id, guest, ctx, deadline, phase="config")
    await wait_for_quiet(guest, deadline, final=False)


async def wait_for_quiet(guest: GuestClient, deadline: float, *, final: bool) -> None:
    """Give what was started (a launch, a save) time to end; a film that plays is no failure.

    Args:
        final: wait as long as the guest's strictest rule says, for what is done half a second after
            a click; otherwise until nothing is at work any more.
    """
    timeout_s = min(QUIET_TIMEOUT_S, remaining_s(deadline, "a quiet desktop"))
    try:
        last_seq = (await guest.health(timeout_s=timeout_s)).last_seq if final else 0
        if last_seq > 0:
            await guest.final(last_seq, wait_s=timeout_s, observe={"format": "none"})
        else:
            await guest.ready(timeout_s=timeout_s)
    except GuestRefused as error:
        if error.status not in {404, 504}:  # 404: a guest that runs OSWorld's own server cannot tell
            raise


async def run_steps(
    steps: Sequence[Step],
    task_id: str,
    guest: GuestClient,
    ctx: TaskContext,
    deadline: float,
    *,
    phase: str,
) -> None:
    """Carry out steps in order; the first failure ends it.

    Args:
        phase: ``config`` or ``postconfig``, for error messages.

    Raises:
        TaskError, GuestError: as `run_setup`.
    """
    runner = _Runner(task_id, guest, ctx, deadline)
    for index, step in enumerate(steps):
        try:
            await runner.run(step)
        except GuestRefused as error:
            raise SetupFailed(str(error), step=index, kind=step.type, phase=phase) from error
        except _StepProblem as error:
            raise SetupFailed(str(error), step=index, kind=step.type, phase=phase) from error


class _StepProblem(Exception):
    """A step did not bring about what it should."""


class _Runner:
    def __init__(self, task_id: str, guest: GuestClient, ctx: TaskContext, deadline: float) -> None:
        self.task_id = task_id
        self.guest = guest
        self.ctx = ctx
        self.deadline = deadline

    def left(self, what: str, most: float) -> float:
        return min(most, remaining_s(self.deadline, what))

    async def run(self, step: Step) -> None:
        """Carry out one step."""
        match step:
            case ExecuteStep():
                await self.execute(step.parameters)
            case ExecuteVerifiedStep():
                await self.execute_verified(step)
            case LaunchStep():
                command = substitute(step.parameters.command, self.ctx)
                timeout_s = self.left("launch", 30)
                await self.guest.launch(command, shell=step.parameters.shell, timeout_s=timeout_s)
            case OpenStep():
                await self.guest.open_file(step.parameters.path, timeout_s=self.left("open", 90))
            case WallpaperStep():
                timeout_s = self.left("change_wallpaper", 30)
                await self.guest.change_wallpaper(step.parameters.path, timeout_s=timeout_s)
            case SleepStep():
                seconds = step.parameters.seconds
                if seconds > remaining_s(self.deadline, "sleep"):
                    raise _StepProblem(f"there is no time left to sleep {seconds} s")
                await asyncio.sleep(seconds)
            case UploadStep():
                for upload in step.parameters.files:
                    await self.upload(upload.path, await self.content(upload))
            case DownloadStep():
                for file in step.parameters.files:
                    source = await self.ctx.downloads.get(file.url, file.path, self.task_id, self.deadline)
                    await self.upload(file.path, await asyncio.to_thread(source.read_bytes))
            case WindowStep():
                await self.window(step)
            case UnknownStep():
                raise UnsupportedTask([f"setup step {step.type}"])
            case _:
                assert_never(step)

    async def window(self, step: WindowStep) -> None:
        parameters = step.parameters
        act = self.guest.activate_window if step.type == "activate_window" else self.guest.close_window
        await act(
            parameters.window_name,
            strict=parameters.strict,
            by_class=parameters.by_class,
            timeout_s=self.left(step.type, 30),
        )

    async def upload(self, path: str, data: bytes) -> None:
        await self.guest.upload(path, data, timeout_s=self.left(f"uploading {path}", 120))

    async def content(self, upload: Upload) -> bytes:
        limit = self.ctx.policy.max_file_bytes
        if upload.text is not None:
            data = upload.text.encode()
        elif upload.data_base64 is not None:
            try:
                data = base64.b64decode(upload.data_base64, validate=True)
            except binascii.Error as error:
                raise _StepProblem(f"data_base64 of {upload.path} is not base64: {error}") from error
        else:
            source = self.ctx.downloads.local_file(upload.local_path or "")
            data = await asyncio.to_thread(source.read_bytes)
        if len(data) > limit:
            raise RefusedByPolicy(f"{upload.path} is larger than {limit} bytes", {"path": upload.path})
        return data

    async def execute(self, parameters: ExecuteParameters) -> None:
        """Run a command, again and again if it has an ``until``; any return code is fine."""
        command = substitute(parameters.command, self.ctx)
        while True:
            result = await self.guest.execute(
                command, shell=parameters.shell, timeout_s=self.left("execute", COMMAND_TIMEOUT_S)
            )
            if parameters.stdout:
                self.ctx.outputs[parameters.stdout] = result.output.encode()
            if parameters.stderr:
                self.ctx.outputs[parameters.stderr] = result.error.encode()
            if parameters.until is None or _fulfilled(
                parameters.until, result.output, result.error, result.returncode
            ):
                return
            if remaining_s(self.deadline, "execute until") <= UNTIL_INTERVAL_S:
                raise _StepProblem("its until was not fulfilled in time")
            await asyncio.sleep(UNTIL_INTERVAL_S)

    async def execute_verified(self, step: ExecuteVerifiedStep) -> None:
        parameters = step.parameters
        most = self.left("execute_with_verification", COMMAND_TIMEOUT_S)
        await self.guest.execute_with_verification(
            substitute(parameters.command, self.ctx),
            shell=parameters.shell,
            verification=parameters.verification.model_dump(exclude_none=True),
            max_wait_s=min(parameters.max_wait_time, most),
            check_interval_s=parameters.check_interval,
            timeout_s=most,
        )


def _fulfilled(until: Until, stdout: str, stderr: str, returncode: int) -> bool:
    """As OSWorld: any one condition is enough."""
    return (
        (until.returncode is not None and returncode == until.returncode)
        or (until.stdout is not None and until.stdout in stdout)
        or (until.stderr is not None and until.stderr in stderr)
    )


def substitute(command: str | list[str], ctx: TaskContext) -> str | list[str]:
    """Fill in OSWorld's placeholders; every other brace stays as it is."""
    width, height = ctx.screen
    values = {
        "{CLIENT_PASSWORD}": ctx.policy.client_password,
        "{SCREEN_WIDTH}": str(width),
        "{SCREEN_HEIGHT}": str(height),
        "{SCREEN_WIDTH_HALF}": str(width // 2),
        "{SCREEN_HEIGHT_HALF}": str(height // 2),
    }

    def fill(text: str) -> str:
        for name, value in values.items():
            text = text.replace(name, value)
        return text

    return fill(command) if isinstance(command, str) else [fill(part) for part in command]
