"""What goes wrong with a browser is the replica's, once its guest agent is known to be well."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator

from osgym_host.tasks.getter_plugin import PROBE_S, ResultUnusable, StepProblem, TaskRun
from osgym_osworld.browser.errors import BrowserProblem


@contextlib.asynccontextmanager
async def of_step(run: TaskRun) -> AsyncIterator[None]:
    """Turn a `BrowserProblem` into a failed step.

    Raises:
        StepProblem: The browser did not do it.
        GuestError: The guest agent does not answer either.
    """
    try:
        yield
    except BrowserProblem as error:
        await run.guest.health(timeout_s=PROBE_S)
        raise StepProblem(str(error), by_replica=True) from error


@contextlib.asynccontextmanager
async def of_result(run: TaskRun) -> AsyncIterator[None]:
    """Turn a `BrowserProblem` into a result that cannot be scored.

    Raises:
        ResultUnusable: The browser did not do it.
        GuestError: The guest agent does not answer either.
    """
    try:
        yield
    except BrowserProblem as error:
        await run.guest.health(timeout_s=PROBE_S)
        raise ResultUnusable(str(error)) from error
