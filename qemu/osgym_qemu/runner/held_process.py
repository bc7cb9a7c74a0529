"""QEMU process watched by its pidfd, bare or in a container."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace

from osgym_host.runtimes.base import RuntimeFault
from osgym_host.runtimes.processes import ProcessIdentity
from osgym_host.runtimes.replica_cgroup import CgroupGroup, MemoryEnd, take_notice
from osgym_qemu.machine.launcher import ProcessEnd, VmProcess
from osgym_qemu.runner.output import read_output


@dataclass(frozen=True, slots=True)
class RunningProcess:
    """Running process, with the host agent's descriptors for it.

    Attributes:
        output: Memory file to which it prints, None when it was adopted.
        keeper: Id of its container, empty for a bare process.
    """

    identity: ProcessIdentity
    pidfd: int
    group: CgroupGroup | None
    output: int | None
    keeper: str = ""


class HeldProcess(VmProcess):
    """Process from its start or adoption until nothing of it is left."""

    def __init__(self, name: str, running: RunningProcess, removed: Callable[[str], None]) -> None:
        """Take over a process with its descriptors; `removed` is called when nothing of it is left."""
        self._name = name
        self._running = running
        self._output = running.output
        self._removed = removed
        self._text = ""
        self._end: ProcessEnd | None = None
        self._gone = asyncio.Event()
        self._ended = asyncio.Event()
        self._oom_fd = running.group.oom_eventfd() if running.group is not None else None
        asyncio.get_running_loop().add_reader(running.pidfd, self._on_gone)

    @property
    def name(self) -> str:
        return self._name

    @property
    def identity(self) -> ProcessIdentity:
        return self._running.identity

    @property
    def keeper(self) -> str:
        return self._running.keeper

    @property
    def group(self) -> CgroupGroup | None:
        return self._running.group

    @property
    def end(self) -> ProcessEnd | None:
        return self._end

    async def wait(self) -> ProcessEnd:
        await self._ended.wait()
        assert self._end is not None
        return self._end

    async def kill(self, *, timeout_s: float = 10.0) -> None:
        if not self._gone.is_set():
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._running.pidfd, signal.SIGKILL)
        try:
            async with asyncio.timeout(timeout_s):
                await self._gone.wait()
        except TimeoutError as exc:
            raise RuntimeFault(f"process {self.pid} of {self._name} does not end") from exc

    def output_tail(self, max_bytes: int = 4096) -> str:
        return self._text[-max_bytes:] if self._output is None else read_output(self._output, max_bytes)

    def _on_gone(self) -> None:
        asyncio.get_running_loop().remove_reader(self._running.pidfd)
        os.close(self._running.pidfd)
        # The group is still there now; a daemon may hear of the exit before it hears of its cause.
        memory = self._memory_end()
        self._gone.set()
        self._read_end(memory)

    def _memory_end(self) -> MemoryEnd:
        noticed: bool | None = None
        if self._oom_fd is not None:
            noticed = take_notice(self._oom_fd)
            os.close(self._oom_fd)
            self._oom_fd = None
        return MemoryEnd.NONE if self.group is None else self.group.memory_end(noticed=noticed)

    @abstractmethod
    def _read_end(self, memory: MemoryEnd) -> None:
        """Read its end, and call `_finish`.

        Args:
            memory: Whether the kernel killed it for want of memory.
        """

    def _finish(self, end: ProcessEnd) -> None:
        self._text = self.output_tail()
        if self._output is not None:
            os.close(self._output)
            self._output = None
        self._end = replace(end, output=self._text)
        self._ended.set()
