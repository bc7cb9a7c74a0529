"""Links through a program of this machine, such as the command of a cloud."""

from __future__ import annotations

import os
import re
import shlex
import shutil
from pathlib import Path

from osgym_infra.links.access import ProgramAccess
from osgym_infra.links.errors import CommandTimedOut, FleetHostUnreachable
from osgym_infra.links.link import CollectedOutput, CompletedCommand, DataListener, OutputListener, guarded
from osgym_infra.links.local import run_program

LAST_WORD = "osgym-exit-code:"
"""Text before a command's exit code, which is printed where the program does not pass it on."""
_LAST_WORD = re.compile(rf"{LAST_WORD}(\d{{1,3}})\s*$", re.MULTILINE)
SSH_FAILED = 255
"""Exit code of ssh where it does not get to the host (ssh(1))."""


class ProgramLink:
    """Link to a host that a program enters; each command is a process of its own."""

    def __init__(self, access: ProgramAccess, *, root: bool) -> None:
        self._access, self._root = access, root

    @property
    def name(self) -> str:
        return self._access.instance

    async def connect(self) -> None:
        """Check that the program is installed.

        Raises:
            FleetHostUnreachable: It is not.
        """
        program = self._access.shell_argv()[0]
        if shutil.which(program) is None:
            raise FleetHostUnreachable(
                self.name, f"there is no `{program}` on PATH", remedy="Install it to log in to this host"
            )

    async def run(
        self,
        argv: list[str],
        *,
        timeout_s: float,
        stdin: bytes | Path | None = None,
        on_output: OutputListener | None = None,
        on_data: DataListener | None = None,
    ) -> CompletedCommand:
        access = self._access
        command = shlex.join([*(["sudo", "-n"] if self._root else []), *guarded(argv)])
        if not access.passes_exit_code:
            command += f"; echo {LAST_WORD}$?"
        found = CollectedOutput(on_output, on_data)
        whole = access.command_argv(command)
        try:
            code = await run_program(whole, os.environ, found, timeout_s=timeout_s, stdin=stdin)
        except TimeoutError:
            raise CommandTimedOut(self.name, f"the command did not end within {timeout_s:g} s") from None
        except OSError as error:
            raise FleetHostUnreachable(self.name, f"cannot run {whole[0]}: {error}") from error
        by_hand = f"Try it by hand: {shlex.join(access.shell_argv())}"
        if access.passes_exit_code:
            if code == SSH_FAILED:
                problem = f"{whole[0]} could not log in to {self.name}"
                raise FleetHostUnreachable(self.name, problem, remedy=by_hand)
            return CompletedCommand(code, found.text)
        said = _LAST_WORD.findall(found.text)
        if not said:
            problem = f"the session with {self.name} ended before the command"
            raise FleetHostUnreachable(self.name, problem, remedy=by_hand)
        return CompletedCommand(int(said[-1]), found.text)

    async def close(self) -> None:
        pass
