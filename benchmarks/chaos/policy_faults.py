"""Faults that a policy causes itself: who is told to, and what came of it."""

from __future__ import annotations

import asyncio

from benchmarks.chaos.orders import Order, command_of
from benchmarks.chaos.schedule import Kind
from benchmarks.chaos.stage import Impact, NoVictim, Stage

ORDERED_S = 90.0
"""How long an attempt may take until its policy has typed."""


async def harm_as_policy(stage: Stage, kind: Kind, draw: float) -> Impact:
    """Let the policy of one attempt harm its own desktop.

    Raises:
        NoVictim: There is no attempt, or it ended before its policy had typed.
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
    await stage.until_gone(impact, order.sent_at)
    return impact
