"""Errors of a browser, and their meaning for setup steps and results.

A browser is the replica's: an error of a browser is the result's, once the guest agent is known to work.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator

from osgym_host.tasks.getter_plugin import PROBE_S, OsgymHostError, ResultUnusable, StepProblem, TaskRun


class BrowserProblem(OsgymHostError):
    """The browser refuses a call, fails at it, or gives an answer that makes no sense."""


class BrowserClosed(BrowserProblem):
    """No program listens at the debugging port."""


class NotTheBrowser(BrowserProblem):
    """Another program listens at the debugging port."""


@contextlib.asynccontextmanager
async def as_step_error(run: TaskRun) -> AsyncIterator[None]:
    """Turn a `BrowserProblem` into a failed step.

    Raises:
        StepProblem: The browser failed.
        GuestError: The guest agent does not answer either.
    """
    try:
        yield
    except BrowserProblem as error:
        await run.guest.health(timeout_s=PROBE_S)
        raise StepProblem(str(error), by_replica=True) from error


@contextlib.asynccontextmanager
async def as_result_error(run: TaskRun) -> AsyncIterator[None]:
    """Turn a `BrowserProblem` into a result that cannot be scored.

    Raises:
        ResultUnusable: The browser failed.
        GuestError: The guest agent does not answer either.
    """
    try:
        yield
    except BrowserProblem as error:
        await run.guest.health(timeout_s=PROBE_S)
        raise ResultUnusable(str(error)) from error
