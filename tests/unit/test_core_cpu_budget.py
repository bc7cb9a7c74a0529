"""CPU budgets: in the long run callers get their share, whatever their calls cost."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from osgym_host.core.cpu_budget import BURST_S, CpuBudget

COSTS = st.lists(st.floats(0.0001, 0.5), min_size=1, max_size=200)


@given(COSTS, st.floats(0.01, 1))
def test_a_caller_uses_its_share_and_a_burst(costs: list[float], share: float) -> None:
    """The calls of a caller, each begun when it may, use its share and one burst, except for the last one."""
    budget, now_s, used_s = CpuBudget(), 0.0, 0.0
    for cost_s in costs:
        assert used_s - cost_s <= BURST_S + share * now_s + max(costs)
        reserved = budget.reserve("a", "kind", share, now_s)
        now_s += reserved.wait_s
        budget.settle(reserved, cost_s)
        used_s += cost_s
    assert used_s <= BURST_S + share * now_s + 2 * max(costs)


def test_calls_that_come_at_once_get_one_turn_after_the_other() -> None:
    """Each of several calls waits for the recent cost of those before it."""
    budget = CpuBudget()
    for _ in range(60):
        budget.settle(budget.reserve("learning", "dear", 1.0, 0.0), 0.1)
    waits = [budget.reserve("a", "dear", 0.1, 0.0).wait_s for _ in range(6)]
    assert waits == pytest.approx([0, 0, 0, 1, 2, 3], abs=0.05)
    assert budget.reserve("b", "dear", 0.1, 0.0).wait_s == 0


def test_a_cancelled_call_costs_nothing() -> None:
    """A cancelled reservation is refunded, and credit never exceeds the burst."""
    budget = CpuBudget()
    for _ in range(200):
        budget.cancel(budget.reserve("a", "kind", 0.1, 0.0))
    assert budget.reserve("a", "kind", 0.1, 0.0).wait_s == 0
    reserved = budget.reserve("a", "kind", 0.1, 1e6)
    budget.settle(reserved, BURST_S + 1)
    assert budget.reserve("a", "kind", 0.1, 1e6).wait_s == pytest.approx(10)


def test_memory_is_bounded() -> None:
    """Only the latest callers and kinds of calls are remembered."""
    budget = CpuBudget(most=3)
    for number in range(50):
        budget.settle(budget.reserve(f"caller{number}", f"kind{number}", 0.1, 0.0), 0.01)
    assert len(budget._credits) == len(budget._costs) == 3
