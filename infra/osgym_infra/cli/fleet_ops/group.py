"""A command on many hosts at once, over Fabric's thread group: bounded, each with a deadline of its own."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

import fabric

from osgym_infra.cli.fleet_ops.link import Budget, HostLink, LinkFailed, Output, RemoteJob
from osgym_infra.cli.fleet_ops.outcome import HostFailure, HostOutcome
from osgym_infra.cli.fleet_ops.process_link import IapLink, LocalLink, SsmLink
from osgym_infra.cli.fleet_ops.ssh_link import Jumps, SshLink
from osgym_infra.cli.fleet_ops.text import Lines
from osgym_infra.fleet.fleet_file import FleetHost, IapAccess, SshAccess, SsmAccess

INTERRUPT_S = 3.0
"""How long hosts are given to be left in order after Ctrl-C."""


@dataclass(frozen=True, slots=True)
class Finished:
    """A command's end on one host.

    Attributes:
        exit_code: None: it did not come to its end, as `failure` says.
        text: the end of its output, as it came.
    """

    host: FleetHost
    exit_code: int | None
    text: str
    took_s: float
    failure: HostFailure | None = None

    def outcome(self) -> HostOutcome:
        """A command that ends with another code than 0 is a failure."""
        failure = self.failure
        if failure is None and self.exit_code != 0:
            failure = HostFailure("run", f"the command ended with exit code {self.exit_code}")
        found = {"exit_code": self.exit_code, "took_s": round(self.took_s, 2)}
        return HostOutcome(self.host.id, failure, found)


class Watcher(Protocol):
    """Who is told what happens; called by the threads of several hosts."""

    def begun(self, host: FleetHost) -> None:
        """A connection is made now."""
        ...

    def line(self, host: FleetHost, text: str) -> None:
        """A line came, fit to be shown."""
        ...

    def finished(self, done: Finished) -> None:
        """The host is done."""
        ...


class Member:
    """One host of a group: what `ThreadingGroup` takes for a connection."""

    def __init__(
        self,
        host: FleetHost,
        gate: threading.Semaphore,
        stop: threading.Event,
        watcher: Watcher,
        jumps: Jumps,
    ) -> None:
        self._host, self._gate, self._stop, self._watcher, self._jumps = host, gate, stop, watcher, jumps

    def run(self, job: RemoteJob) -> Finished:
        """Run the job when it is this host's turn. Raises nothing that a host could cause."""
        with self._gate:
            began = time.monotonic()
            lines = Lines(lambda text: self._watcher.line(self._host, text), job.most_lines)
            output = Output(lines)
            code, failure = None, None
            link: HostLink | None = None
            try:
                budget = Budget(job, self._stop)
                budget.check("connect")
                self._watcher.begun(self._host)
                link = link_of(self._host, self._jumps)
                code = link.execute(job, budget, output)
            except LinkFailed as error:
                failure = error.failure
            finally:
                if link is not None:
                    link.close()
            if lines.left_out:
                self._watcher.line(self._host, f"… {lines.left_out} more lines are not shown")
            done = Finished(self._host, code, output.text, time.monotonic() - began, failure)
            self._watcher.finished(done)
            return done

    def close(self) -> None:
        """Each connection is closed by the thread that made it."""


def run_on_all(hosts: Sequence[FleetHost], job: RemoteJob, parallel: int, watcher: Watcher) -> list[Finished]:
    """Run a command on all hosts, so many at a time; returns what became of each, in their order.

    Raises:
        KeyboardInterrupt: what ran was stopped, on the hosts too.
    """
    gate, stop = threading.Semaphore(parallel), threading.Event()
    jumps = Jumps()
    members = [Member(host, gate, stop, watcher, jumps) for host in hosts]
    group = fabric.ThreadingGroup.from_connections(members)
    try:
        results = group.run(job)
    except KeyboardInterrupt:
        stop.set()
        _leave(gate, parallel)
        raise
    finally:
        jumps.close()
    return [results[member] for member in members]


def link_of(host: FleetHost, jumps: Jumps) -> HostLink:
    """The way into a host.

    Raises:
        LinkFailed: fleet.json does not name one.
    """
    match host.access:
        case SshAccess() as ssh if ssh.is_local:
            return LocalLink()
        case SshAccess() as ssh:
            return SshLink(ssh, jumps)
        case SsmAccess() as ssm:
            return SsmLink(ssm)
        case IapAccess() as iap:
            return IapLink(iap)
        case None:
            raise LinkFailed("connect", "fleet.json does not say how it is entered",
                             "run `osgym fleet export` again, or add an object `ssh` to it")  # fmt: skip


def with_login(hosts: Sequence[FleetHost], user: str | None, key: Path | None) -> list[FleetHost]:
    """The hosts with another account or key, as `--ssh-user` and `--ssh-key` ask."""

    def changed(host: FleetHost) -> FleetHost:
        if not isinstance(host.access, SshAccess) or host.access.is_local:
            return host
        access = host.access
        access = replace(access, user=user or access.user, key_file=str(key) if key else access.key_file)
        return replace(host, access=access)

    return [changed(host) for host in hosts]


def _leave(gate: threading.Semaphore, parallel: int) -> None:
    """Wait, not for long, until every host was left."""
    end_s = time.monotonic() + INTERRUPT_S
    for _ in range(parallel):
        if not gate.acquire(timeout=max(0.0, end_s - time.monotonic())):
            return
