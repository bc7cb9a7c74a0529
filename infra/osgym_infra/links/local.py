"""This machine as a host, and programs of this machine."""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import pwd
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from osgym_infra.links.access import LOCAL
from osgym_infra.links.errors import CommandTimedOut, FleetHostError, LoginRefused
from osgym_infra.links.link import CollectedOutput, CompletedCommand, DataListener, OutputListener, guarded
from osgym_infra.links.sudo import refusal

PASSED = ("http_proxy", "https_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY")
"""Of our environment, which holds passphrases and keys of clouds, a command gets these only."""

_STOP_S = 15.0
_CHUNK = 1 << 18


class LocalLink:
    """Link to this machine; commands run as root, through `sudo -n` where needed.

    Args:
        variables: Environment of commands besides `PASSED`.
    """

    name = LOCAL

    def __init__(self, variables: Mapping[str, str] | None = None, *, root: bool = True) -> None:
        self._variables = {**_environment(), **(variables or {})}
        self._prefix = [] if os.geteuid() == 0 or not root else ["sudo", "-n"]
        if self._prefix and variables:
            self._prefix.append(f"--preserve-env={','.join(variables)}")

    async def connect(self) -> None:
        """Check that we may become root.

        Raises:
            LoginRefused: We may not.
        """
        if not self._prefix:
            return
        try:
            done = await self.run(["true"], timeout_s=10)
        except OSError as error:
            raise LoginRefused(self.name, f"root is needed, and sudo cannot be run: {error}") from error
        if done.exit_code != 0:
            uid = os.geteuid()
            raise LoginRefused(self.name, refusal(_user_name(uid), uid, done.output.strip()))

    async def run(
        self,
        argv: list[str],
        *,
        timeout_s: float,
        stdin: bytes | Path | None = None,
        on_output: OutputListener | None = None,
        on_data: DataListener | None = None,
    ) -> CompletedCommand:
        whole = self._prefix + (argv if stdin is not None else guarded(argv))
        found = CollectedOutput(on_output, on_data)
        try:
            code = await run_program(whole, self._variables, found, timeout_s=timeout_s, stdin=stdin)
        except TimeoutError:
            problem = f"`{' '.join(argv[:3])}` took longer than {timeout_s:g} s"
            raise CommandTimedOut(self.name, problem) from None
        except OSError as error:
            raise FleetHostError(self.name, f"cannot run {whole[0]}: {error}") from error
        return CompletedCommand(code, found.text)

    async def close(self) -> None:
        pass


async def run_program(
    argv: Sequence[str],
    environment: Mapping[str, str],
    output: CollectedOutput,
    *,
    timeout_s: float,
    stdin: bytes | Path | None = None,
) -> int:
    """Run a program of this machine until its end; return its exit code.

    Args:
        stdin: Input of the program; without, its stdin stays open until it ends or is stopped.

    Raises:
        OSError: It cannot be started.
        TimeoutError: It ran for longer than `timeout_s`, and was stopped.
    """
    process = await asyncio.create_subprocess_exec(
        *argv,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=environment,
        start_new_session=True,  # Ctrl-C in a terminal is ours to pass on, in our order
    )
    try:
        async with asyncio.timeout(None if math.isinf(timeout_s) else timeout_s):
            async with asyncio.TaskGroup() as group:
                if stdin is not None:
                    group.create_task(_feed(process, stdin))
                group.create_task(_listen(process, output))
            return await process.wait()
    finally:
        await asyncio.shield(_stop(process))


def becomes_root() -> bool:
    """Return whether a process without a terminal becomes root, as commands here have to."""
    if os.geteuid() == 0:
        return True
    try:
        done = subprocess.run(
            ["sudo", "-n", "true"], stdin=subprocess.DEVNULL, capture_output=True, timeout=30, check=False,
            start_new_session=True,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0


def _user_name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"#{uid}"


def _environment() -> dict[str, str]:
    passed = {name: os.environ[name] for name in PASSED if name in os.environ}
    path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    return {"PATH": path, "HOME": "/root", "LANG": "C.UTF-8", **passed}


async def _feed(process: asyncio.subprocess.Process, data: bytes | Path) -> None:
    assert process.stdin is not None
    with contextlib.suppress(ConnectionError):  # it ended without reading all; its exit code says why
        if isinstance(data, bytes):
            process.stdin.write(data)
            await process.stdin.drain()
        else:
            with data.open("rb") as file:
                while chunk := await asyncio.to_thread(file.read, _CHUNK):
                    process.stdin.write(chunk)
                    await process.stdin.drain()
    process.stdin.close()


async def _listen(process: asyncio.subprocess.Process, found: CollectedOutput) -> None:
    assert process.stdout is not None
    while data := await process.stdout.read(_CHUNK):
        found.feed(data)


async def _stop(process: asyncio.subprocess.Process) -> None:
    """Stop a running command: close its stdin, which the guard sees, then kill it."""
    if process.returncode is not None:
        return
    assert process.stdin is not None
    process.stdin.close()
    if await _ended(process):
        return
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    await _ended(process)


async def _ended(process: asyncio.subprocess.Process) -> bool:
    """Wait for the end; the pipe is read empty first, since `wait` returns only then."""
    assert process.stdout is not None
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_STOP_S):
            while await process.stdout.read(_CHUNK):
                pass
            await process.wait()
    return process.returncode is not None
