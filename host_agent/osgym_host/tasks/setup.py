"""Setup of a task: its steps bring a clean desktop into the state that the task starts from."""

from __future__ import annotations

from collections.abc import Sequence

from osgym_host.guest_client import GuestClient, GuestRefused
from osgym_host.tasks.context import TaskContext, TaskRun
from osgym_host.tasks.errors import SetupFailed, StrictSetupFailed, UnsupportedTask
from osgym_host.tasks.policy import remaining_s
from osgym_host.tasks.registry import STEPS, FailedCommand, StepProblem
from osgym_host.tasks.replica_side import is_ours
from osgym_host.tasks.schema import Step, Task
from osgym_protocol.host_api import SetupWarning
from osgym_protocol.limits import MAX_SETUP_WARNINGS, MAX_WARNING_COMMAND_CHARS, MAX_WARNING_STDERR_CHARS

QUIET_TIMEOUT_S = 5.0


async def run_setup(
    task: Task, guest: GuestClient, ctx: TaskContext, deadline: float, *, strict: bool = False
) -> tuple[SetupWarning, ...]:
    """Carry out the task's ``config`` on a clean replica, then wait for a quiet desktop.

    A command that fails does not end it, as in OSWorld, whose tasks have some that do: it is a warning.

    Args:
        deadline: In ``asyncio.get_running_loop().time()``.
        strict: A command that fails ends it.

    Returns:
        The warnings, at most `MAX_SETUP_WARNINGS`.

    Raises:
        TaskError: With ``error_class`` ``task`` or ``infra``; the replica is then of no use.
        GuestError: The replica is gone or does not answer.
    """
    if not task.config:
        return ()
    warnings: list[SetupWarning] = []
    run = TaskRun(guest, ctx, task.safe_id, deadline)
    for index, step in enumerate(task.config):
        failed = await run_step(run, index, step, phase="config")
        if failed is None or len(warnings) >= MAX_SETUP_WARNINGS:
            continue
        warnings.append(_warning(index, step, failed))
        if strict:
            raise StrictSetupFailed(warnings[0])
    await wait_for_quiet(guest, deadline, final=False)
    return tuple(warnings)


def _warning(index: int, step: Step, failed: FailedCommand) -> SetupWarning:
    what = failed.what[:MAX_WARNING_COMMAND_CHARS]
    return SetupWarning(index, step.type, what, failed.exit_status, failed.stderr[-MAX_WARNING_STDERR_CHARS:])


async def wait_for_quiet(guest: GuestClient, deadline: float, *, final: bool) -> None:
    """Wait until the desktop is quiet, for a bounded time: a film that plays is no failure.

    Args:
        final: Wait as long as the guest's strictest rule says, for what is done half a second after
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
    steps: Sequence[Step], task_id: str, guest: GuestClient, ctx: TaskContext, deadline: float, *, phase: str
) -> None:
    """Carry out steps in order; the first failure ends it, and a command's status is no failure.

    Raises:
        TaskError, GuestError: As `run_setup`.
    """
    run = TaskRun(guest, ctx, task_id, deadline)
    for index, step in enumerate(steps):
        await run_step(run, index, step, phase=phase)


async def run_step(run: TaskRun, index: int, step: Step, *, phase: str) -> FailedCommand | None:
    """Carry out a setup step; return its command if the command failed.

    Args:
        phase: ``config`` or ``postconfig``, for error messages.

    Raises:
        TaskError, GuestError: As `run_setup`.
    """
    if (kind := STEPS.get(step.type)) is None:
        raise UnsupportedTask([f"setup step {step.type}"])
    try:
        return await kind.run(run, step.parameters)
    except (GuestRefused, StepProblem) as error:
        by_replica = not is_ours(error) if isinstance(error, GuestRefused) else error.by_replica
        failed = SetupFailed(str(error), step=index, kind=step.type, phase=phase, by_replica=by_replica)
        if isinstance(error, GuestRefused):
            failed.details["guest_code"] = error.code
        raise failed from error
