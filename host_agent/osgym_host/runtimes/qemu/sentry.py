"""The one look at all virtual machines, once a second: what `watch` decides is found out here."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Protocol

from osgym_host.guest_http import GuestError, HttpClient
from osgym_host.runtimes.base import GuestAddress
from osgym_host.runtimes.qemu import watch
from osgym_host.runtimes.qemu.watch import Verdict, Vitals, WatchOptions

log = logging.getLogger(__name__)

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_STAT_BYTES = 1024
_STOPPED_AGAIN_S = 0.3
"""A process that was found stopped is looked at again after so long, before it counts as hung."""
_MAX_ANSWER_BYTES = 64 * 1024
_PROBES_AT_ONCE = 4


class Watched(Protocol):
    """What the sentry needs of a replica. All of it is called on the event loop."""

    vitals: Vitals

    @property
    def pid(self) -> int:
        """QEMU's process."""
        ...

    @property
    def guest(self) -> GuestAddress:
        """Where its guest agent listens."""
        ...

    @property
    def guest_token(self) -> str | None:
        """What its guest agent demands."""
        ...

    @property
    def excused(self) -> bool:
        """It is dead, is being destroyed, or stands still because we said so."""
        ...

    def condemn(self, verdict: Verdict) -> None:
        """It must be killed."""
        ...


class Sentry:
    """Looks at the machines of one instance."""

    def __init__(
        self, options: WatchOptions, watched: Callable[[], Iterable[Watched]], *, probe_guests: bool = True
    ) -> None:
        """Nothing happens before `start`."""
        self._options = options
        self._watched = watched
        self._probe_guests = probe_guests
        self._task: asyncio.Task[None] | None = None
        self._probes: dict[Watched, asyncio.Task[None]] = {}
        self._slots = asyncio.Semaphore(_PROBES_AT_ONCE)
        self.looks = 0
        self.probes = 0

    def start(self) -> None:
        """Begin to look."""
        self._task = asyncio.create_task(self._run(), name="qemu:sentry")

    async def stop(self) -> None:
        """Stop looking. Idempotent."""
        tasks = [*self._probes.values(), *([self._task] if self._task is not None else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._task = None

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(self._options.look_s)
            try:
                suspects = self.look(self._watched())
                if suspects:
                    await asyncio.sleep(_STOPPED_AGAIN_S)
                    self.look(suspects)
            except Exception:  # the top of a task: without it nobody would look any more
                log.exception("looking at the virtual machines failed")

    def look(self, machines: Iterable[Watched]) -> list[Watched]:
        """Look at these machines once; return those that seem to be stopped for the first time."""
        suspects = []
        for machine in machines:
            if machine.excused:
                continue
            self.looks += 1
            look = watch.parse_stat(_read_stat(machine.pid), time.monotonic(), _TICKS_PER_S)
            if look is None:  # it ended; its pidfd says so
                continue
            machine.vitals = vitals = machine.vitals.seen(look, self._options)
            if vitals.is_stopped():
                machine.condemn(watch.STOPPED)
            elif vitals.stopped_since_s is not None:
                suspects.append(machine)
            elif (
                self._probe_guests
                and machine not in self._probes
                and vitals.wants_probe(look.at_s, self._options)
            ):
                self._probe_soon(machine)
        return suspects

    def _probe_soon(self, machine: Watched) -> None:
        task = asyncio.create_task(self._probe(machine))
        self._probes[machine] = task
        task.add_done_callback(lambda _task: self._probes.pop(machine, None))

    async def _probe(self, machine: Watched) -> None:
        """Ask a guest whether it is alive; condemn it when it was silent for too long."""
        async with self._slots:
            self.probes += 1
            began_s, waited_s = time.monotonic(), waited_for_cpu_s(machine.pid)
            error = await self._ask(machine)
            now_s = time.monotonic()
            if machine.excused:
                return
            if not error:
                machine.vitals = machine.vitals.answered(now_s)
                return
            starved_s = waited_for_cpu_s(machine.pid) - waited_s
            machine.vitals = machine.vitals.unanswered(began_s, starved_s)
            failing_s = machine.vitals.failing_s(now_s)
            if failing_s >= self._options.hang_s:
                machine.condemn(watch.silent(failing_s, error))

    async def _ask(self, machine: Watched) -> str:
        """Return what went wrong, empty when the guest agent answered (with whatever)."""
        client = HttpClient(machine.guest, token=machine.guest_token, max_connections=1)
        try:
            await client.request(
                "GET",
                "/v1/health",
                timeout_s=self._options.probe_timeout_s,
                max_body=_MAX_ANSWER_BYTES,
            )
        except GuestError as exc:
            return str(exc)
        finally:
            client.close()
        return ""


def _read_stat(pid: int) -> bytes:
    """The content of `/proc/<pid>/stat`, empty when the process is gone. 8 µs."""
    try:
        fd = os.open(f"/proc/{pid}/stat", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return b""
    try:
        return os.read(fd, _STAT_BYTES)
    except OSError:
        return b""
    finally:
        os.close(fd)


def waited_for_cpu_s(pid: int) -> float:
    """How long the threads of a process were ready to run and did not get the CPU, since they began.

    The largest of them: they wait at the same time. From `schedstat`; 0 where the kernel does not tell.
    """
    longest_ns = 0
    try:
        for task in Path(f"/proc/{pid}/task").iterdir():
            fields = (task / "schedstat").read_text().split()
            longest_ns = max(longest_ns, int(fields[1]))
    except (OSError, ValueError, IndexError):
        return longest_ns / 1e9
    return longest_ns / 1e9
