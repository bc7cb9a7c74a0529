"""``/execute``, ``/execute_with_verification`` and ``/setup/launch``."""

from __future__ import annotations

import asyncio
from typing import Any

from osgym_guest.http import Request, Response
from osgym_guest.osworld import error, fields
from osgym_guest.osworld.context import OsworldContext
from osgym_guest.osworld.process import Command, CommandResult, CommandTimeoutError, start
from osgym_guest.osworld.x11 import XError

TIMEOUT_S = 120.0
MAX_TIMEOUT_S = 600.0
CHECK_TIMEOUT_S = 5.0


async def execute(context: OsworldContext, request: Request) -> Response:
    data = request.json_object()
    command, shell = fields.command(data, context.session)
    try:
        result = await _run(context, data, command, shell)
    except (CommandTimeoutError, OSError, ValueError) as exc:
        return error(500, str(exc), _code(exc))
    return Response.json(_success(result))


async def execute_verified(context: OsworldContext, request: Request) -> Response:
    """Run a command to its end, then wait until its expected effect is there."""
    data = request.json_object()
    command, shell = fields.command(data, context.session)
    verification = data.get("verification") or {}
    if not isinstance(verification, dict):
        raise fields.bad("verification must be an object")
    for name in verification:
        if name in ("window_exists", "command_success"):
            fields.text(verification, name)
    max_wait_s = fields.number(data, "max_wait_time", 10, low=0, high=MAX_TIMEOUT_S)
    interval_s = max(fields.number(data, "check_interval", 1, low=0, high=MAX_TIMEOUT_S), 0.05)
    try:
        result = await _run(context, data, command, shell)
    except (CommandTimeoutError, OSError, ValueError) as exc:
        return error(500, str(exc), _code(exc))
    if not verification:
        return Response.json(_success(result))
    clock = asyncio.get_running_loop().time
    begin = clock()
    while not await _holds(context, verification):
        if clock() - begin + interval_s > max_wait_s:
            failed = _success(result) | {
                "status": "verification_failed",
                "verification": "failed",
                "wait_time": max_wait_s,
            }
            return Response.json(failed, status=500)
        await asyncio.sleep(interval_s)
    return Response.json(_success(result) | {"verification": "passed", "wait_time": clock() - begin})


async def launch(context: OsworldContext, request: Request) -> Response:
    """Start a command without waiting for it."""
    command, shell = fields.command(request.json_object(), context.session)
    try:
        await start(command, context.session, shell=shell)
    except (OSError, ValueError) as exc:
        return error(500, str(exc), _code(exc))
    shown = command if shell or isinstance(command, str) else " ".join(command)
    return Response.text(f"{shown} launched successfully")


async def _run(context: OsworldContext, data: dict[str, Any], command: Command, shell: bool) -> CommandResult:
    timeout_s = fields.number(data, "timeout", TIMEOUT_S, low=0.1, high=MAX_TIMEOUT_S)
    isolated = data.get("isolated") is True
    return await context.runner.run(command, shell=shell, timeout_s=timeout_s, isolated=isolated)


def _success(result: CommandResult) -> dict[str, Any]:
    answer: dict[str, Any] = {
        "status": "success",
        "output": result.output,
        "error": result.error,
        "returncode": result.returncode,
    }
    if result.truncated:
        answer["truncated"] = True
    return answer


def _code(exc: Exception) -> str:
    return "timeout" if isinstance(exc, CommandTimeoutError) else "cannot_start"


async def _holds(context: OsworldContext, verification: dict[str, Any]) -> bool:
    """Return whether all expected effects are there; a check that fails counts as absent."""
    title = verification.get("window_exists")
    if title is not None:
        try:
            if await context.windows.find(title) is None:
                return False
        except XError:
            return False
    script = verification.get("command_success")
    if script is not None:
        try:
            result = await context.runner.run(["/bin/sh", "-c", script], timeout_s=CHECK_TIMEOUT_S)
        except (CommandTimeoutError, OSError, ValueError):
            return False
        return result.returncode == 0
    return True
