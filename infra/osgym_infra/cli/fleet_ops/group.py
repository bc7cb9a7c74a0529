"""A command on many hosts at once: bounded, each host with a deadline of its own."""

from __future__ import annotations

import asyncio
import math
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from osgym_infra.cli.fleet_ops.outcome import HostFailure, HostOutcome
from osgym_infra.cli.fleet_ops.text import MOST_SHOWN_LINES, Lines, escaped
from osgym_infra.fleet.managed import ManagedHost
from osgym_infra.links.access import ProgramAccess, SshAccess
from osgym_infra.links.errors import (
    CommandTimedOut,
    ConnectionLost,
    FleetHostError,
    HostKeyMismatch,
    LoginRefused,
)
from osgym_infra.links.link import HostLink
from osgym_infra.links.local import LocalLink
from osgym_infra.links.program import LAST_WORD, ProgramLink
from osgym_infra.links.ssh import SshLink
from osgym_infra.links.ssh_login import CONNECT_S

MOST_KEPT_BYTES = 1024 * 1024
"""Bytes that are kept of the end of a command's output, for commands that read it."""


@dataclass(frozen=True, slots=True)
class RemoteJob:
    """Command for many hosts.

    Attributes:
        argv: Run as it is, no shell in between; it ends when the connection does.
        as_root: Whether it runs through `sudo -n` where the login is somebody else's.
        deadline_s: Deadline of one host, from the connection to the command's end; None: only the connection
            has one.
        most_lines: Number of one host's lines that are shown; None: all.
    """

    argv: tuple[str, ...]
    as_root: bool = False
    deadline_s: float | None = None
    most_lines: int | None = MOST_SHOWN_LINES

    def link_to(self, host: ManagedHost) -> HostLink:
        """Return a link to a host, which is not open yet.

        Raises:
            FleetHostError: Fleet.json does not say how it is entered.
        """
        match host.access:
            case SshAccess() as access if access.is_local:
                by_sudo = self.as_root and os.geteuid() != 0
                return LocalLink(None if by_sudo else os.environ, root=self.as_root)
            case SshAccess() as access:
                connect_s = max(1.0, min(CONNECT_S, self.deadline_s or CONNECT_S))
                return SshLink(access, root=self.as_root, connect_s=connect_s)
            case ProgramAccess() as access:
                return ProgramLink(access, root=self.as_root)
            case None:
                remedy = "run `osgym fleet export` again, or add an object `ssh` to it"
                raise FleetHostError(
                    host.id, "fleet.json does not say how to log in to this host", remedy=remedy
                )


@dataclass(frozen=True, slots=True)
class Finished:
    """End of a command on one host.

    Attributes:
        exit_code: None: it did not come to its end, as `failure` says.
        text: The end of its output, as it came.
    """

    host: ManagedHost
    exit_code: int | None
    text: str
    took_s: float
    failure: HostFailure | None = None

    def outcome(self) -> HostOutcome:
        """Return the host's outcome; an exit code other than 0 is a failure."""
        failure = self.failure
        if failure is None and self.exit_code != 0:
            failure = HostFailure("run", f"the command ended with exit code {self.exit_code}")
        found = {"exit_code": self.exit_code, "took_s": round(self.took_s, 2)}
        return HostOutcome(self.host.id, failure, found)


class Watcher(Protocol):
    """Listener for the progress of a command on several hosts."""

    def begun(self, host: ManagedHost) -> None:
        """The connection is being made."""
        ...

    def line(self, host: ManagedHost, text: str) -> None:
        """A line arrived, escaped for a terminal."""
        ...

    def finished(self, done: Finished) -> None:
        """The command ended or failed."""
        ...


def run_on_all(
    hosts: Sequence[ManagedHost], job: RemoteJob, parallel: int, watcher: Watcher
) -> list[Finished]:
    """Run a command on all hosts, a bounded number at once; return their ends in the hosts' order.

    Raises:
        KeyboardInterrupt: What ran was stopped, on the hosts too.
    """

    async def run() -> list[Finished]:
        gate = asyncio.Semaphore(parallel)
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(_run_on(host, job, gate, watcher)) for host in hosts]
        return [task.result() for task in tasks]

    return asyncio.run(run())


async def _run_on(host: ManagedHost, job: RemoteJob, gate: asyncio.Semaphore, watcher: Watcher) -> Finished:
    """Run the job on a host, within the bound of hosts at once. A host cannot make it raise."""
    async with gate:
        began_s = time.monotonic()
        lines = Lines(lambda text: watcher.line(host, text), job.most_lines)
        if isinstance(host.access, ProgramAccess):
            lines.skipped = (LAST_WORD, *host.access.chatter)
        kept = bytearray()

        def feed(data: bytes) -> None:
            kept.extend(data)
            if len(kept) > 2 * MOST_KEPT_BYTES:
                del kept[:-MOST_KEPT_BYTES]
            lines.feed(data)

        watcher.begun(host)
        code, failure, connected = None, None, False
        link: HostLink | None = None
        try:
            link = job.link_to(host)
            await link.connect()
            connected = True
            end_s = math.inf if job.deadline_s is None else began_s + job.deadline_s
            timeout_s = max(0.0, end_s - time.monotonic())
            code = (await link.run(list(job.argv), timeout_s=timeout_s, on_data=feed)).exit_code
        except FleetHostError as error:
            failure = _failure(host, error, job, connected)
        finally:
            lines.end()
            if link is not None:
                await link.close()
        if lines.left_out:
            watcher.line(host, f"… {lines.left_out} more lines are not shown")
        text = kept[-MOST_KEPT_BYTES:].decode(errors="replace")
        done = Finished(host, code, text, time.monotonic() - began_s, failure)
        watcher.finished(done)
        return done


def _failure(host: ManagedHost, error: FleetHostError, job: RemoteJob, connected: bool) -> HostFailure:
    """Return the step that failed, with the operator's remedy."""
    where = "jump " if error.at_jump else ""
    problem = f"{error.host}: {escaped(error.problem, 500)}"
    match error:
        case CommandTimedOut():
            problem = f"the command did not end within {job.deadline_s:g} s and was stopped"
            return HostFailure("run", problem, "give it more time with --deadline-s")
        case HostKeyMismatch():
            remedy = (
                "if that is right, change its host_key and run `osgym fleet export` again, or add the key to "
                "~/.ssh/known_hosts where fleet.json names none"
            )
            return HostFailure(f"{where}host key", problem, remedy)
        case LoginRefused():
            return HostFailure(f"{where}login", problem, "choose others with --ssh-user and --ssh-key")
        case ConnectionLost():
            remedy = "the command may have run partly; check the host before you run it again"
            return HostFailure("run", problem, remedy)
    remedy = error.remedy or "check that the host runs and that sshd listens on that port"
    return HostFailure("run" if connected and not error.remedy else f"{where}connect", problem, remedy)


def with_login(hosts: Sequence[ManagedHost], user: str | None, key: Path | None) -> list[ManagedHost]:
    """Return the hosts with the account or key of `--ssh-user` and `--ssh-key`."""

    def changed(host: ManagedHost) -> ManagedHost:
        if not isinstance(host.access, SshAccess) or host.access.is_local:
            return host
        access = host.access
        access = replace(access, user=user or access.user, key_file=str(key) if key else access.key_file)
        return replace(host, access=access)

    return [changed(host) for host in hosts]
