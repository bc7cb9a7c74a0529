"""Setup steps that the host brings."""

from __future__ import annotations

import asyncio
import base64
import binascii
import re
from typing import Annotated

from pydantic import BeforeValidator, Field, model_validator

from osgym_host.tasks.context import COMMAND_TIMEOUT_S, TaskRun
from osgym_host.tasks.errors import RefusedByPolicy
from osgym_host.tasks.policy import remaining_s
from osgym_host.tasks.registry import (
    Command,
    FailedCommand,
    FilePath,
    FileUrl,
    LenientBool,
    Parameters,
    StepProblem,
    Text,
    setup_step,
)

MAX_FILES = 64
MAX_INLINE_DATA = 16_000_000
UNTIL_INTERVAL_S = 0.3
"""Pause between repetitions of a command with ``until``, as in OSWorld."""


class Download(Parameters):
    """One file to fetch and put into the guest."""

    url: FileUrl
    path: FilePath


class DownloadParameters(Parameters):
    files: Annotated[list[Download], Field(max_length=MAX_FILES)]


@setup_step(DownloadParameters, host_takes_time=True)
async def download(run: TaskRun, parameters: DownloadParameters) -> None:
    """Put files from the web, or from the host's cache, into the guest."""
    for file in parameters.files:
        source = await run.ctx.downloads.get(file.url, file.path, run.task_id, run.deadline)
        await _upload(run, file.path, await asyncio.to_thread(source.read_bytes))


class Upload(Parameters):
    """One file to put into the guest: from the task-files folder, or carried in the task itself."""

    path: FilePath
    local_path: FilePath | None = None
    text: Annotated[str, Field(max_length=MAX_INLINE_DATA)] | None = None
    data_base64: Annotated[str, Field(max_length=MAX_INLINE_DATA)] | None = None

    @model_validator(mode="after")
    def _one_source(self) -> Upload:
        if sum(v is not None for v in (self.local_path, self.text, self.data_base64)) != 1:
            raise ValueError("give exactly one of local_path, text, data_base64")
        return self


class UploadParameters(Parameters):
    files: Annotated[list[Upload], Field(max_length=MAX_FILES)]


@setup_step(UploadParameters)
async def upload_file(run: TaskRun, parameters: UploadParameters) -> None:
    """Put files of the host, or of the task itself, into the guest."""
    for file in parameters.files:
        await _upload(run, file.path, await _content(run, file))


async def _upload(run: TaskRun, path: str, data: bytes) -> None:
    await run.guest.upload(path, data, timeout_s=run.left(f"uploading {path}", 120))


async def _content(run: TaskRun, upload: Upload) -> bytes:
    limit = run.ctx.policy.max_file_bytes
    if upload.text is not None:
        data = upload.text.encode()
    elif upload.data_base64 is not None:
        try:
            data = base64.b64decode(upload.data_base64, validate=True)
        except binascii.Error as error:
            raise StepProblem(f"data_base64 of {upload.path} is not base64: {error}") from error
    else:
        source = run.ctx.downloads.local_file(upload.local_path or "")
        data = await asyncio.to_thread(source.read_bytes)
    if len(data) > limit:
        raise RefusedByPolicy(f"{upload.path} is larger than {limit} bytes", {"path": upload.path})
    return data


def _output_name(value: object) -> object:
    if isinstance(value, str) and (value in {".", ".."} or re.search(r"[/\\\x00-\x1f]", value)):
        raise ValueError("give a plain file name: the output is kept in the episode's memory, not at a path")
    return value


OutputName = Annotated[str, Field(max_length=200), BeforeValidator(_output_name)]


class RepeatUntil(Parameters):
    """End condition of a repeated command: any one of its parts is enough, as in OSWorld."""

    returncode: int | None = None
    stdout: Text | None = None
    stderr: Text | None = None

    def holds(self, stdout: str, stderr: str, returncode: int) -> bool:
        return (
            (self.returncode is not None and returncode == self.returncode)
            or (self.stdout is not None and self.stdout in stdout)
            or (self.stderr is not None and self.stderr in stderr)
        )


class CommandParameters(Parameters):
    command: Command
    shell: LenientBool = False


class ExecuteParameters(CommandParameters):
    stdout: OutputName = ""
    stderr: OutputName = ""
    until: RepeatUntil | None = None


@setup_step(ExecuteParameters)
async def execute(run: TaskRun, parameters: ExecuteParameters) -> FailedCommand | None:
    """Run a command, again and again if it has an ``until``; without one a return code of 0 is expected."""
    command = run.substitute(parameters.command)
    while True:
        result = await run.guest.execute(
            command,
            shell=parameters.shell,
            timeout_s=run.left("execute", COMMAND_TIMEOUT_S),
            isolated=run.of_check,
        )
        if parameters.stdout:
            run.ctx.outputs[parameters.stdout] = result.output.encode()
        if parameters.stderr:
            run.ctx.outputs[parameters.stderr] = result.error.encode()
        if parameters.until is None:
            return FailedCommand.of(command, result)
        if parameters.until.holds(result.output, result.error, result.returncode):
            return None
        if remaining_s(run.deadline, "execute until") <= UNTIL_INTERVAL_S:
            raise StepProblem("its condition `until` was not met in time", by_replica=True)
        await asyncio.sleep(UNTIL_INTERVAL_S)


class Verification(Parameters):
    window_exists: Text | None = None
    command_success: Text | None = None


class ExecuteVerifiedParameters(CommandParameters):
    verification: Verification = Verification()
    max_wait_time: Annotated[float, Field(ge=0, le=600)] = 10
    check_interval: Annotated[float, Field(gt=0, le=60)] = 1


@setup_step(ExecuteVerifiedParameters)
async def execute_with_verification(
    run: TaskRun, parameters: ExecuteVerifiedParameters
) -> FailedCommand | None:
    """Run a command and wait until the guest agent has verified its effect."""
    most = run.left("execute_with_verification", COMMAND_TIMEOUT_S)
    command = run.substitute(parameters.command)
    verification = parameters.verification.model_dump(exclude_none=True)
    result = await run.guest.execute_with_verification(
        command,
        shell=parameters.shell,
        verification=verification,
        max_wait_s=min(parameters.max_wait_time, most),
        check_interval_s=parameters.check_interval,
        timeout_s=most,
    )
    return None if verification else FailedCommand.of(command, result)


@setup_step(CommandParameters)
async def launch(run: TaskRun, parameters: CommandParameters) -> None:
    """Start a program and leave it running."""
    command = run.substitute(parameters.command)
    await run.guest.launch(command, shell=parameters.shell, timeout_s=run.left("launch", 30))


class PathParameters(Parameters):
    path: FilePath


@setup_step(PathParameters)
async def open_file(run: TaskRun, parameters: PathParameters) -> None:
    """Open a file of the guest in its application."""
    await run.guest.open_file(parameters.path, timeout_s=run.left("open", 90))


@setup_step(PathParameters)
async def change_wallpaper(run: TaskRun, parameters: PathParameters) -> None:
    """Show an image file of the guest as the desktop's wallpaper."""
    await run.guest.change_wallpaper(parameters.path, timeout_s=run.left("change_wallpaper", 30))


class SleepParameters(Parameters):
    seconds: Annotated[float, Field(ge=0, le=600)]


@setup_step(SleepParameters, host_takes_time=True)
async def sleep(run: TaskRun, parameters: SleepParameters) -> None:
    """Wait."""
    if parameters.seconds > remaining_s(run.deadline, "sleep"):
        raise StepProblem(f"there is no time left to sleep {parameters.seconds} s")
    await asyncio.sleep(parameters.seconds)


class WindowParameters(Parameters):
    window_name: Text
    strict: LenientBool = False
    by_class: LenientBool = False


@setup_step(WindowParameters)
async def activate_window(run: TaskRun, parameters: WindowParameters) -> None:
    """Bring a window to the front."""
    timeout_s = run.left("activate_window", 30)
    await run.guest.activate_window(**parameters.model_dump(), timeout_s=timeout_s)


@setup_step(WindowParameters)
async def close_window(run: TaskRun, parameters: WindowParameters) -> None:
    """Close a window."""
    await run.guest.close_window(**parameters.model_dump(), timeout_s=run.left("close_window", 30))
