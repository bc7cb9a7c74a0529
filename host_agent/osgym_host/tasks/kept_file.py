"""Setup step that keeps a file as the set-up left it, for metrics that compare the file at the check with it.

The copy lies in the memory of the host, where no program of the desktop can change it; the getter
``cache_file`` gives it to the metric.
"""

from __future__ import annotations

from osgym_host.guest_client import GuestAnswerTooLarge, GuestRefused
from osgym_host.tasks.context import TaskRun
from osgym_host.tasks.registry import FilePath, Parameters, StepProblem, setup_step
from osgym_host.tasks.steps import OutputName

MAX_KEPT_BYTES = 16 << 20
_READING_S = 30
"""Deadline for reading the file from the guest."""


class KeepParameters(Parameters):
    path: FilePath
    dest: OutputName


@setup_step(KeepParameters)
async def keep_file(run: TaskRun, parameters: KeepParameters) -> None:
    """Keep a copy of a desktop's file under the name ``dest``, which ``cache_file`` gives to a metric."""
    timeout_s = run.left(f"reading {parameters.path}", _READING_S)
    try:
        data = await run.guest.file(parameters.path, max_bytes=MAX_KEPT_BYTES, timeout_s=timeout_s)
    except GuestAnswerTooLarge:
        raise StepProblem(f"{parameters.path} is larger than {MAX_KEPT_BYTES} bytes") from None
    except GuestRefused as error:
        raise StepProblem(f"{parameters.path} cannot be read: {error}") from error
    run.ctx.outputs[parameters.dest] = bytes(data)
