"""Host agent over replicas without a desktop, each of which breaks on command.

The agent is the real one (`osgym host serve`: API, pool, episodes, scoring). Its replicas live in the same
process and speak the guest protocol over unix sockets.
`python -m benchmarks.chaos.synthetic.stand_in serve …` is that agent; `CHAOS_CONTROL` is the path of the unix
socket on which it takes orders, a line of JSON each.
"""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.support.fake_guest import Guest, GuestAnswer, GuestServer
from tests.support.fake_runtime import FakeImage, FakeReplica, FakeRuntime

from benchmarks.chaos.synthetic.faults import EXITS, Fault, Moment
from osgym_host.app import HostAgent
from osgym_host.cli import serve
from osgym_host.cli.main import main
from osgym_host.runtimes import base
from osgym_host.runtimes.kind import ImageRef
from osgym_host.settings import Settings

EXECUTE = "/setup/execute"
PREPARE, ANSWER = "prepare", "answer"
"""First words of the commands by which tasks are set up and checked, before the trajectory's number."""
REFUSALS = {
    Fault.REFUSES: "internal",
    Fault.SOUND_INTERNAL: "internal",
    Fault.SOUND_UNAUTHORIZED: "unauthorized",
    Fault.SOUND_DISPLAY_GONE: "display_gone",
}
SOUND = frozenset((Fault.SOUND_INTERNAL, Fault.SOUND_UNAUTHORIZED, Fault.SOUND_DISPLAY_GONE))
"""Faults of a guest agent that the runtime vouches for, as `local` can."""
SILENT = frozenset((Fault.FROZEN, Fault.STOPPED_OUTSIDE, Fault.STARVED, Fault.STARVED_BY_ITSELF))
"""Faults by which a guest agent answers nothing."""


@dataclass(slots=True)
class Orders:
    """Orders to replicas before they know their trajectory, by its number.

    Attributes:
        in_setup: Faults that meet the next set-ups of a trajectory, one each.
        broken_checks: Trajectories whose check fails on every desktop.
    """

    in_setup: dict[str, list[Fault]] = field(default_factory=lambda: defaultdict(list))
    broken_checks: set[str] = field(default_factory=set)


class BreakableGuest(Guest):
    """The guest agent of a replica that can be told to break.

    Attributes:
        armed: The fault that meets the replica at a moment to come, and the process that it has then.
    """

    def __init__(self, replica: BreakableReplica, orders: Orders) -> None:
        super().__init__(replica.replica_id, replica.generation)
        self._replica = replica
        self._orders = orders
        self.armed: tuple[Moment, Fault, int] | None = None
        self.at_moment = asyncio.Event()
        self.broken: Fault | None = None

    async def answer(self, path: str, body: bytes) -> tuple[str, bytes]:
        command = json.loads(body)["command"] if path == EXECUTE else [""]
        if command[0] == PREPARE and self._orders.in_setup[command[1]]:
            await self._replica.strike(self._orders.in_setup[command[1]].pop(0))
        if path == "/v1/step":
            await self._comes(Moment.STEP)
        if command[0] == ANSWER:
            await self._comes(Moment.CHECK)
            if command[1] in self._orders.broken_checks or self.broken is Fault.CHECK_REFUSED:
                raise GuestAnswer(409, "internal", "the question has no answer")
        if self.broken in SILENT:
            await asyncio.Event().wait()
        if self.broken is Fault.NONSENSE:
            return "application/json", b"what?"
        if self.broken in REFUSALS and path == "/v1/step":
            raise GuestAnswer(409, REFUSALS[self.broken], "as it was told to")
        given = await super().answer(path, body)
        if path == "/v1/step":
            await self._comes(Moment.ANSWER)
        return given

    async def _comes(self, moment: Moment) -> None:
        if self.armed is None or self.armed[0] is not moment:
            return
        (_, fault, pid), self.armed = self.armed, None
        self.at_moment.set()
        if fault is Fault.HELD:
            await asyncio.Event().wait()
        else:
            await self._replica.strike(fault, pid)


class BreakableReplica(FakeReplica):
    """One replica."""

    def __init__(self, spec: base.ReplicaSpec, folder: Path, orders: Orders) -> None:
        super().__init__(spec, folder)
        self._pid = os.getpid()
        self.agent: BreakableGuest = BreakableGuest(self, orders)
        self._server = GuestServer(self.agent)

    @property
    def pid(self) -> int:
        """Return the process whose state the host agent reads as that of the replica and its agent."""
        return self._pid

    async def strike(self, fault: Fault, pid: int = 0) -> None:
        """Break now; `pid` is the process that stands for the replica from now on."""
        self._pid = pid or self._pid
        if fault in EXITS:
            self.die(base.ExitReason(EXITS[fault]))
        elif fault is Fault.GONE:
            self._server.stop()
        elif fault is Fault.RESTARTED:
            self.agent.restart()
        elif fault is Fault.ANSWER_LOST:
            self.agent.drop_next_answer = True
        elif fault is Fault.CONNECTIONS_CUT:
            for writer in list(self._server.writers):
                writer.transport.abort()
        elif fault is not Fault.NONE:
            self.agent.broken = fault


class BreakableRuntime(FakeRuntime):
    """Makes such replicas and takes orders for them. Some replicas cannot be made, or do not get ready."""

    FAILED_EVERY = 50
    """Interval of replicas of which one is not made, and one more ends before it is ready."""

    def __init__(self, folder: Path, control: Path) -> None:
        super().__init__(folder, branching=False)
        self._control = control
        self._orders = Orders()
        self._server: asyncio.Server | None = None

    async def start(self) -> base.StartReport:
        self._control.unlink(missing_ok=True)
        self._server = await asyncio.start_unix_server(self._serve, self._control)
        return await super().start()

    async def create(self, spec: base.ReplicaSpec) -> base.Replica:
        self.created += 1
        if self.created % self.FAILED_EVERY == 0:
            raise base.ReplicaCreateFailed("no room", step="mount", replica_id=spec.replica_id)
        replica = BreakableReplica(spec, self.folder / spec.replica_id, self._orders)
        self.alive[spec.replica_id] = replica
        await replica.start()
        if self.created % self.FAILED_EVERY == self.FAILED_EVERY // 2:
            replica.die(base.ExitReason.SESSION_ENDED)
        return replica

    async def attest(self, replica: base.Replica, sockets: Sequence[int]) -> bool:
        assert isinstance(replica, BreakableReplica)
        if replica.agent.broken is Fault.TAMPERED:
            raise base.GuestTampered("its code is another")
        if replica.agent.broken is Fault.CRASHED:
            raise base.GuestRestarted("it was started again")
        return replica.agent.broken in SOUND

    def used_cpu_s(self, replica: base.Replica) -> float | None:
        """Return the CPU time of a desktop: nothing, or as much as one core can give."""
        assert isinstance(replica, BreakableReplica)
        return time.monotonic() if replica.agent.broken is Fault.STARVED_BY_ITSELF else 0.0

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()
        await super().stop()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while line := await reader.readline():
                answer = await self._obey(json.loads(line))
                writer.write(json.dumps(answer).encode() + b"\n")
                await writer.drain()
        except ConnectionError:
            pass
        finally:
            writer.close()

    async def _obey(self, order: dict[str, Any]) -> dict[str, Any]:
        fault, moment = Fault(order["fault"]), Moment(order["moment"])
        if order.get("met"):
            return {"done": not self._orders.in_setup[order["number"]]}
        if moment in (Moment.SETUP, Moment.EVERY_SETUP):
            self._orders.in_setup[order["number"]] += [fault] * order["times"]
            return {"done": True}
        if fault is Fault.CHECK_BROKEN:
            self._orders.broken_checks.add(order["number"])
            return {"done": True}
        replica = self.alive.get(order["replica_id"])
        if not isinstance(replica, BreakableReplica) or replica.exit_info is not None:
            return {"done": False}
        if order.get("wait"):
            await replica.agent.at_moment.wait()
        elif moment in (Moment.STEP, Moment.ANSWER, Moment.CHECK):
            replica.agent.armed = moment, fault, order.get("pid", 0)
        else:
            await replica.strike(fault, order.get("pid", 0))
        return {"done": True}


def _agent(settings: Settings, image: ImageRef, **more: Any) -> HostAgent:
    runtime = BreakableRuntime(settings.data_dir / "r", Path(os.environ["CHAOS_CONTROL"]))
    return HostAgent(settings, image, runtime, **more)


if __name__ == "__main__":
    # In place of what the module imported, which its types do not let be set.
    serve.find_images = lambda settings: [ImageRef(FakeImage(), "small")]  # type: ignore[attr-defined]
    serve.HostAgent = _agent  # type: ignore[attr-defined,assignment]
    main()
