"""``/run_python`` and ``/run_bash_script``."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

from osgym_guest.http import HttpError, Request, Response
from osgym_guest.osworld import fields
from osgym_guest.osworld.context import OsworldContext
from osgym_guest.osworld.process import CommandTimeoutError

PYTHON = "/usr/bin/python3"
BASH = "/bin/bash"
PYTHON_TIMEOUT_S = 30.0
MAX_TIMEOUT_S = 600.0


async def run_python(context: OsworldContext, request: Request) -> Response:
    """Run Python source in an interpreter of its own."""
    code = fields.text(request.json_object(), "code")
    script = _write(code, ".py")
    try:
        result = await context.runner.run([PYTHON, str(script)], timeout_s=PYTHON_TIMEOUT_S)
    except CommandTimeoutError:
        return _python_failed("Execution timeout: Code took too long to execute", "TimeoutExpired")
    except OSError as exc:
        return _python_failed(f"Execution error: {exc}", str(exc))
    finally:
        script.unlink(missing_ok=True)
    problem = result.error
    if result.returncode != 0 and not problem:
        problem = f"Process exited with code {result.returncode}"
    answer: dict[str, Any] = {
        "status": "success" if result.returncode == 0 else "error",
        "message": "\n".join(part for part in (result.output, problem) if part),
        "need_more": False,
        "output": result.output,
        "error": problem,
        "return_code": result.returncode,
    }
    if result.truncated:
        answer["truncated"] = True
    return Response.json(answer)


def _python_failed(message: str, problem: str) -> Response:
    body = {"status": "error", "message": message, "error": problem, "need_more": False, "output": None}
    return Response.json(body, status=500)


async def run_bash_script(context: OsworldContext, request: Request) -> Response:
    """Run a bash script, with standard error merged into the output."""
    data = request.json_object()
    try:
        source = fields.text(data, "script")
        timeout_s = fields.number(data, "timeout", 100, low=0.1, high=MAX_TIMEOUT_S)
    except HttpError as exc:
        return _bash_failed(exc.message, 400)
    cwd = context.session.home
    if data.get("working_dir"):
        cwd = context.session.path(fields.text(data, "working_dir"))
        if not context.session.file(cwd).is_dir():
            return _bash_failed(f"Working directory does not exist: {cwd}", 400)
    script = _write(source, ".sh")
    try:
        result = await context.runner.run([BASH, str(script)], timeout_s=timeout_s, merge=True, cwd=cwd)
    except CommandTimeoutError:
        return _bash_failed(f"Script execution timed out after {timeout_s:g} seconds", 500)
    except OSError as exc:
        return _bash_failed(f"Failed to execute script: {exc}", 500)
    finally:
        script.unlink(missing_ok=True)
    answer: dict[str, Any] = {
        "status": "success" if result.returncode == 0 else "error",
        "output": result.output,
        "error": "",
        "returncode": result.returncode,
    }
    if result.truncated:
        answer["truncated"] = True
    return Response.json(answer)


def _bash_failed(message: str, status: int) -> Response:
    return Response.json({"status": "error", "output": message, "error": "", "returncode": -1}, status=status)


def _write(source: str, suffix: str) -> Path:
    """Write the source of a script to a temporary file, readable by its user only."""
    descriptor, name = tempfile.mkstemp(prefix="osgym-", suffix=suffix)
    with os.fdopen(descriptor, "w", encoding="utf-8", errors="surrogatepass", newline="") as file:
        file.write(source)
    return Path(name)
