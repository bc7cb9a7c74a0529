"""Faults of one replica: by the host's tools (killed, frozen, hostile guest agent), and by its own policy."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from benchmarks.chaos.docker_faults import remove_runner
from benchmarks.chaos.orders import Order, command_of
from benchmarks.chaos.reach import AGENT, DISPLAY
from benchmarks.chaos.schedule import REPLACED, Kind
from benchmarks.chaos.stage import Impact, NoVictim, Stage

HOSTILE = Path(__file__).with_name("hostile_guest.py")
BACK_S = 15.0
ORDERED_S = 90.0
"""Longest time until the policy of the chosen attempt has typed its line."""
CHECK_S = 400.0
"""Longest time until that attempt ends; the host ends a check that waits for a result after 300 s."""

Harm = Callable[[Stage, str], Awaitable[None]]


def _signalled(part: str, number: signal.Signals) -> Harm:
    async def harm(stage: Stage, replica_id: str) -> None:
        await stage.reach.signal_harness(replica_id, part, number)

    return harm


async def _killed(stage: Stage, replica_id: str) -> None:
    os.kill(stage.reach.first_process(replica_id), signal.SIGKILL)


async def _frozen(stage: Stage, replica_id: str) -> None:
    stage.reach.freeze(replica_id)


def _replaced(mode: str) -> Harm:
    async def harm(stage: Stage, replica_id: str) -> None:
        await stage.reach.put(replica_id, "/tmp/hostile.py", HOSTILE.read_bytes())
        await stage.reach.run_beside_agent(replica_id, f"python3 /tmp/hostile.py {mode}")

    return harm


HARM: dict[Kind, Harm] = {
    Kind.AGENT_KILLED: _signalled(AGENT, signal.SIGKILL),
    Kind.AGENT_FROZEN: _signalled(AGENT, signal.SIGSTOP),
    Kind.DISPLAY_KILLED: _signalled(DISPLAY, signal.SIGKILL),
    Kind.DISPLAY_FROZEN: _signalled(DISPLAY, signal.SIGSTOP),
    Kind.REPLICA_KILLED: _killed,
    Kind.REPLICA_FROZEN: _frozen,
    Kind.ONE_BYTE_CHUNKS: _replaced("chunks"),
    Kind.JSON_MOUNTAIN: _replaced("mountain"),
    Kind.NOISE: _replaced("noise"),
    Kind.RUNNER_REMOVED: remove_runner,
}


async def harm_replica(stage: Stage, kind: Kind, draw: float) -> Impact:
    """Hit the replica of one attempt.

    Raises:
        NoVictim: No attempt can be hit, or its replica was gone before the fault.
    """
    attempt = stage.victim(draw)
    impact = Impact(kind, stage.now_s(), attempt.replica_id)
    fault_at = time.monotonic()
    attempt.harmed_by.append(kind)
    impact.touched = 1
    try:
        await HARM[kind](stage, attempt.replica_id)
    except (LookupError, ProcessLookupError) as error:
        if stage.events.when(attempt.replica_id, "retiring") is None and stage.restarted_at < fault_at:
            impact.note = f"could not be done: {error}"
            if kind not in REPLACED:
                attempt.harmed_by.remove(kind)
                raise NoVictim(str(error)) from error
        else:
            attempt.harmed_by.remove(kind)
            raise NoVictim(f"it ended first: {error}") from error
    if kind is Kind.AGENT_KILLED:
        # The desktop starts it again: what is measured is until it answers, or the replica is gone.
        began = time.monotonic()
        while time.monotonic() - began < BACK_S:
            if await stage.reach.answers(attempt.replica_id):
                impact.clean_s = time.monotonic() - fault_at
                impact.note = "started again"
                return impact
            if stage.events.when(attempt.replica_id, "gone") is not None:
                break
    await stage.until_gone(impact, fault_at)
    return impact


async def harm_as_policy(stage: Stage, kind: Kind, draw: float) -> Impact:
    """Let the policy of one attempt harm its own desktop.

    The time to a clean slot counts from the end of the desktop or of the episode, since the moment at which a
    bomb reached its bound is not known.

    Raises:
        NoVictim: No attempt is under way, or the chosen one ended before its policy had typed the line.
    """
    attempt = stage.victim(draw)
    impact = Impact(kind, stage.now_s(), attempt.replica_id)
    order = Order(kind, command_of(kind, stage.flights.task_of(attempt.number)))
    attempt.harmed_by.append(kind)
    attempt.order = order
    await asyncio.wait((order.typed,), timeout=ORDERED_S)
    order.end()
    if not order.typed.result():
        attempt.harmed_by.remove(kind)
        raise NoVictim("the desktop did not get what was typed")
    assert order.sent_at is not None
    impact.touched = 1
    impact.at_s = order.sent_at - stage.began
    over = await stage.events.until(lambda: stage.flights.open.get(attempt.number) is not attempt, CHECK_S)
    if not over:
        impact.wrong.append(f"the episode was not over {CHECK_S:g} s after the fault")
    await stage.until_gone(impact, order.sent_at)
    if impact.clean_s is not None and impact.noticed_s is not None:
        impact.clean_s -= impact.noticed_s
    return impact
