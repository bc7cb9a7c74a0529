"""A host agent over fake replicas that are processes of their own, so that they outlive it when it is killed.

Takes the arguments of `osgym_host`: `python -m tests.support.fake_runtime_host serve --data-dir … --set …`.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
import os
import select
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from osgym_host.addresses import GuestAddress, UnixAddress
from osgym_host.app import HostAgent
from osgym_host.cli import serve
from osgym_host.cli.main import main
from osgym_host.guest_client.http import HttpClient
from osgym_host.runtimes import base
from osgym_host.runtimes.kind import ImageRef
from osgym_host.settings import Settings
from tests.support import ROOT, fake_guest
from tests.support.fake_runtime import FakeImage, FakeRuntime, Points

UP_S = 15.0


class ProcessReplica(base.Replica):
    """One replica: a process that this agent or a former one started."""

    def __init__(self, spec: base.ReplicaSpec, folder: Path, pid: int) -> None:
        super().__init__(spec)
        self.folder = folder
        self._pid = pid
        self._pidfd = os.pidfd_open(pid)

    pid = property(lambda self: self._pid)

    @property
    def guest(self) -> GuestAddress:
        return UnixAddress(self.folder / "agent.sock")

    async def wait_dead(self) -> base.ExitInfo:
        while not select.select([self._pidfd], [], [], 0)[0]:  # noqa: ASYNC110  # enough for a test
            await asyncio.sleep(0.02)
        self.mark_dead(base.ExitInfo(base.ExitReason.KILLED, "for the test"))
        return await super().wait_dead()

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)


class ProcessRuntime(FakeRuntime):
    """Finds, adopts and reaps what a killed agent left; keeps points on disk."""

    def __init__(self, data_dir: Path, instance: str) -> None:
        super().__init__(data_dir / "run" / instance / "replicas")
        self.points = Points(data_dir / "points")
        self._running: dict[str, ProcessReplica] = {}

    def capabilities(self) -> base.Capabilities:
        egress = frozenset({base.Egress.NONE})
        return base.Capabilities("fake", False, False, False, egress, adoption=True, branching=True)

    async def start(self) -> base.StartReport:
        self.folder.mkdir(parents=True, exist_ok=True)
        found = []
        for folder in sorted(self.folder.iterdir()):
            try:
                noted = json.loads((folder / "vm.json").read_text())
                os.kill(noted["pid"], 0)
            except (OSError, ValueError):
                shutil.rmtree(folder, ignore_errors=True)
                continue
            address = UnixAddress(folder / "agent.sock")
            digest = FakeImage().digest
            found.append(
                base.ReplicaRecord(noted["replica_id"], noted["generation"], digest, noted["pid"], address)
            )
        return base.StartReport(adoptable=tuple(found), points=self.points.kept())

    async def create(self, spec: base.ReplicaSpec) -> base.Replica:
        folder = self.folder / spec.replica_id
        folder.mkdir(parents=True)
        state = json.dumps(self.points.state(spec.origin)) if spec.origin is not None else ""
        argv = [sys.executable, "-m", fake_guest.__name__, str(folder), spec.replica_id, str(spec.generation)]
        process = await asyncio.create_subprocess_exec(
            *argv, stdin=subprocess.PIPE, start_new_session=True, cwd=ROOT
        )
        assert process.stdin is not None
        process.stdin.write(state.encode())
        process.stdin.close()
        noted = {"replica_id": spec.replica_id, "generation": spec.generation, "pid": process.pid}
        (folder / "vm.json").write_text(json.dumps(noted))
        replica = ProcessReplica(spec, folder, process.pid)
        self._running[spec.replica_id] = replica
        async with asyncio.timeout(UP_S):
            while not (folder / "up").exists():  # noqa: ASYNC110  # another process makes it
                await asyncio.sleep(0.02)
        return replica

    async def adopt(self, record: base.ReplicaRecord) -> base.Replica:
        spec = base.ReplicaSpec(record.replica_id, record.generation, FakeImage())
        try:
            replica = ProcessReplica(spec, self.folder / record.replica_id, record.pid)
        except ProcessLookupError as error:
            raise base.ReplicaNotFound("it is gone", replica_id=record.replica_id) from error
        self._running[record.replica_id] = replica
        return replica

    async def reap(self, record: base.ReplicaRecord) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(record.pid, signal.SIGKILL)
        shutil.rmtree(self.folder / record.replica_id, ignore_errors=True)

    async def destroy(self, replica: base.Replica) -> None:
        assert isinstance(replica, ProcessReplica)
        replica.kill()
        await replica.wait_dead()
        shutil.rmtree(replica.folder, ignore_errors=True)
        self._running.pop(replica.replica_id, None)

    async def state_of(self, replica: base.Replica) -> dict[str, Any]:
        client = HttpClient(replica.guest)
        try:
            answer = await client.request("GET", "/test/state", timeout_s=5)
        finally:
            client.close()
        state: dict[str, Any] = json.loads(bytes(answer.body))
        return state

    async def stop(self) -> None:
        for replica in list(self._running.values()):
            await self.destroy(replica)


def _agent(settings: Settings, image: ImageRef, **more: Any) -> HostAgent:
    return HostAgent(settings, image, ProcessRuntime(settings.data_dir, settings.instance), **more)


if __name__ == "__main__":
    # In place of what the module imported, which its types do not let be set.
    serve.find_images = lambda settings: [ImageRef(FakeImage(), "small")]  # type: ignore[attr-defined]  # imported there, not its own
    serve.HostAgent = functools.partial(_agent)  # type: ignore[attr-defined,assignment]
    main()
