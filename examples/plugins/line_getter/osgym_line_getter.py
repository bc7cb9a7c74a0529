"""A getter of one line of a file of the desktop, and a setup step that appends a line to a file."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from osgym_host.tasks.getter_plugin import (
    COMMAND_TIMEOUT_S,
    FailedCommand,
    FilePath,
    Parameters,
    TaskRun,
    Text,
    Value,
    command_output,
    getter,
    setup_step,
)


class LineParameters(Parameters):
    path: FilePath
    number: Annotated[int, Field(ge=1)] = 1


@getter(LineParameters)
async def vm_line(run: TaskRun, parameters: LineParameters) -> Value:
    """A line of a file of the guest, counted from 1, without its end."""
    output, problem = await command_output(run, ["sed", "-n", f"{parameters.number}p", parameters.path])
    if not output:
        return Value(missing=True, note=problem or f"{parameters.path} has no line {parameters.number}")
    return Value(data=output.rstrip("\n"))


class AppendParameters(Parameters):
    path: FilePath
    text: Text


@setup_step(AppendParameters)
async def append_line(run: TaskRun, parameters: AppendParameters) -> FailedCommand | None:
    """Append a line to a file of the guest, which is made if it does not exist."""
    command = ["sh", "-c", 'printf "%s\\n" "$2" >>"$1"', "sh", parameters.path, parameters.text]
    result = await run.guest.execute(command, timeout_s=run.left("appending a line", COMMAND_TIMEOUT_S))
    return FailedCommand.of(command, result)
