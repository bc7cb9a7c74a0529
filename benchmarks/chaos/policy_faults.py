"""Faults that a policy causes itself: the choice of the attempt, and the outcome."""

from __future__ import annotations

import asyncio

from benchmarks.chaos.orders import Order, command_of
from benchmarks.chaos.schedule import Kind
from benchmarks.chaos.stage import Impact, NoVictim, Stage

ORDERED_S = 90.0
"""Longest time until the policy of the chosen attempt has typed its line."""
CHECK_S = 400.0
"""Longest time until that attempt ends; the host ends a check that waits for a result after 300 s."""


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
