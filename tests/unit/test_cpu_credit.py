"""The credit of CPU time: what a steady user, a burst and an endless loop get."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from osgym_host.core.cpu_credit import NORMAL_WEIGHT, CpuCredit, CreditTerms

TERMS = CreditTerms(burst_cpu_s=4.0, cores=0.5, low_weight=2)


def weights(uses: list[float], tick_s: float = 0.5) -> list[int]:
    """Weights after each tick of one who uses so many cores in it."""
    credit, used, found = CpuCredit(TERMS), 0.0, []
    credit.take(0.0, used)
    for number, cores in enumerate(uses, start=1):
        used += cores * tick_s
        credit.take(number * tick_s, used)
        found.append(credit.weight)
    return found


def test_an_application_that_starts_keeps_its_weight() -> None:
    """LibreOffice: four seconds of one core, then next to nothing."""
    assert set(weights([1.0] * 8 + [0.05] * 20)) == {NORMAL_WEIGHT}


def test_an_endless_loop_is_low_after_its_burst_and_stays_so() -> None:
    """Two cores: 4 seconds' credit less 1.5 a second; also while neighbours leave it only one."""
    found = weights([2.0] * 10 + [1.0] * 100)
    assert found.index(2) == 5  # 3 s
    assert set(found[5:]) == {2}


def test_one_that_rests_is_let_off_soon_however_long_it_worked() -> None:
    """Debt is bounded: from -4 to +2 at half a core is 12 seconds."""
    found = weights([2.0] * 1000 + [0.0] * 60)
    assert found[999] == 2
    assert found[1000:].index(NORMAL_WEIGHT) == 23  # 12 s


def test_no_weight_changes_back_and_forth_at_the_edge() -> None:
    """Half of the burst lies between low and normal."""
    found = weights([2.0] * 10 + [0.5, 0.6, 0.4] * 50)
    assert sum(a != b for a, b in itertools.pairwise(found)) <= 1


@given(st.lists(st.floats(0.0, 64.0), max_size=200), st.floats(0.0, 0.5))
def test_who_uses_no_more_than_comes_in_is_never_low(before: list[float], steady: float) -> None:
    """Whatever a replica did: it is at its normal weight again 12 s after it came to rest."""
    found = weights([*before, *[0.0] * 24, *[steady] * 50])
    assert set(found[-50:]) == {NORMAL_WEIGHT}


def test_counters_that_go_back_take_nothing() -> None:
    """An adopted replica's group may be new."""
    credit = CpuCredit(TERMS)
    credit.take(0.0, 100.0)
    assert not credit.take(1.0, 0.0)
    assert credit.left_cpu_s == 4.0
