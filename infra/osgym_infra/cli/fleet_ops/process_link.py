"""Hosts that are entered by a program of this machine: this machine itself, `aws` (SSM), `gcloud` (IAP)."""

from __future__ import annotations

import contextlib
import json
import os
import re
import select
import shlex
import shutil
import signal
import subprocess
from collections.abc import Sequence

from osgym_infra.cli.fleet_ops.link import POLL_S, Budget, LinkFailed, Output, RemoteJob
from osgym_infra.fleet.fleet_file import IapAccess, SsmAccess

STOP_S = 10.0
CHUNK = 1 << 15
LAST_WORD = "osgym-exit-code:"
"""What a command's exit code is printed behind where the way in does not pass it on (SSM)."""
_LAST_WORD = re.compile(rf"{LAST_WORD}(\d{{1,3}})\s*$", re.MULTILINE)


class LocalLink:
    """This machine."""

    def execute(self, job: RemoteJob, budget: Budget, output: Output) -> int:
        """See `HostLink.execute`."""
        return _run(job.guarded(sudo=os.geteuid() != 0), budget, output)

    def close(self) -> None:
        """Nothing is open."""


class IapLink:
    """A Compute Engine instance. `gcloud` brings key, account and tunnel, and passes the exit code on."""

    def __init__(self, access: IapAccess) -> None:
        self._access = access

    def execute(self, job: RemoteJob, budget: Budget, output: Output) -> int:
        """See `HostLink.execute`."""
        command = shlex.join(job.guarded(sudo=True))
        code = _run(iap_argv(self._access, command), budget, output)
        if code == 255:  # ssh(1): "255 if an error occurred"
            raise LinkFailed("connect", f"gcloud could not enter {self._access.instance}",
                             f"try it by hand: {shlex.join(iap_argv(self._access))}")  # fmt: skip
        return code

    def close(self) -> None:
        """Nothing is open."""


class SsmLink:
    """An EC2 instance. A session passes no exit code on: the command's own is printed at its end."""

    def __init__(self, access: SsmAccess) -> None:
        self._access = access

    def execute(self, job: RemoteJob, budget: Budget, output: Output) -> int:
        """See `HostLink.execute`."""
        command = f"{shlex.join(job.guarded(sudo=True))}; echo {LAST_WORD}$?"
        output.skip(LAST_WORD, "Starting session with SessionId", "Exiting session with sessionId")
        _run(ssm_argv(self._access, command), budget, output)
        said = _LAST_WORD.findall(output.text)
        if not said:
            raise LinkFailed("connect", f"the session with {self._access.instance} ended before the command",
                             f"try it by hand: {shlex.join(ssm_argv(self._access))}")  # fmt: skip
        return int(said[-1])

    def close(self) -> None:
        """Nothing is open."""


def iap_argv(access: IapAccess, command: str = "") -> list[str]:
    """`gcloud compute ssh`: a shell, or a command (Google Cloud SDK reference, gcloud compute ssh). A
    command never asks: a host key that is not known yet fails it."""
    argv = [
        "gcloud",
        "compute",
        "ssh",
        access.instance,
        f"--zone={access.zone}",
        f"--project={access.project}",
    ]
    argv.append("--tunnel-through-iap")
    if not command:
        return [*argv, "--strict-host-key-checking=ask"]
    return [*argv, "--strict-host-key-checking=yes", "--quiet", f"--command={command}"]


def ssm_argv(access: SsmAccess, command: str = "") -> list[str]:
    """`aws ssm start-session`: a shell, or a command (Systems Manager user guide, "Start a session")."""
    argv = ["aws", "ssm", "start-session", "--target", access.instance, "--region", access.region]
    if not command:
        return argv
    parameters = json.dumps({"command": [command]})
    return [*argv, "--document-name", "AWS-StartNonInteractiveCommand", "--parameters", parameters]


def _run(argv: Sequence[str], budget: Budget, output: Output) -> int:
    """Run a program here until its end; its stdin stays open as long as somebody wants it."""
    if shutil.which(argv[0]) is None:
        raise LinkFailed("connect", f"there is no `{argv[0]}` on PATH", "install it to enter this host")
    try:
        process = subprocess.Popen(
            argv,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # Ctrl-C in a terminal is ours to pass on
        )
    except OSError as error:
        raise LinkFailed("run", f"cannot run {argv[0]}: {error}") from error
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        with process.stdin, process.stdout:
            descriptor = process.stdout.fileno()
            while True:
                budget.check("run")
                if not select.select([descriptor], [], [], POLL_S)[0]:
                    continue
                data = os.read(descriptor, CHUNK)
                if not data:
                    break
                output.feed(data)
            return _wait(process, budget)
    finally:
        output.end()
        _stop(process)


def _wait(process: subprocess.Popen[bytes], budget: Budget) -> int:
    while True:
        budget.check("run")
        with contextlib.suppress(subprocess.TimeoutExpired):
            return process.wait(POLL_S)


def _stop(process: subprocess.Popen[bytes]) -> None:
    """End it if it still runs: its stdin is closed, which the guard sees; then by force."""
    if process.poll() is not None:
        return
    try:
        process.wait(STOP_S)
    except subprocess.TimeoutExpired:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
