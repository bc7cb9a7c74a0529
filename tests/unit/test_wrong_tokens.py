"""How often addresses may show wrong tokens: guesses are bounded, clients that run are not, memory is."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from osgym_host.core.wrong_tokens import WrongTokens

PER_MIN = 6


def guess(limit: WrongTokens, address: str, shown: bytes, now_s: float) -> bool:
    """Whether a wrong token was looked at."""
    if limit.wait_s(address, shown, now_s) > 0:
        return False
    limit.wrong(address, shown, now_s)
    return True


def test_guesses_of_an_address_are_bounded() -> None:
    """So many at once, then one for each time that was waited; other addresses are not concerned."""
    limit = WrongTokens(PER_MIN)
    looked = [guess(limit, "a", b"g%d" % number, 0.0) for number in range(100)]
    assert looked == [True] * PER_MIN + [False] * (100 - PER_MIN)
    assert guess(limit, "b", b"g", 0.0)
    wait_s = limit.wait_s("a", b"next", 0.0)
    assert wait_s == 60 / PER_MIN
    assert guess(limit, "a", b"next", wait_s)
    assert not guess(limit, "a", b"more", wait_s)


def test_who_has_called_before_goes_on() -> None:
    """From its own address and with its own token; a right one that is new waits as guesses do."""
    limit = WrongTokens(PER_MIN)
    limit.right("a", b"known")
    for number in range(PER_MIN):
        guess(limit, "a", b"g%d" % number, 0.0)
    assert limit.wait_s("a", b"known", 0.0) == 0
    assert limit.wait_s("a", b"new", 0.0) > 0
    assert limit.wait_s("b", b"known", 0.0) == 0


def test_the_last_guess_is_told_apart() -> None:
    """Once, for the log."""
    limit = WrongTokens(PER_MIN)
    assert [limit.wrong("a", b"g%d" % n, 0.0) for n in range(PER_MIN)] == [False] * (PER_MIN - 1) + [True]


def test_a_page_that_goes_on_with_an_old_token_locks_nobody_out() -> None:
    """The same wrong token again and again is one guess, and bounded by itself."""
    limit = WrongTokens(PER_MIN)
    looked = [guess(limit, "a", b"old", second / 10) for second in range(50)]
    assert sum(looked) == PER_MIN
    assert limit.wait_s("a", b"new", 5.0) == 0
    limit.right("a", b"new")
    assert guess(limit, "a", b"old", 60.0), "it may be right by now"


def test_no_bound_where_none_is_wanted() -> None:
    """And nothing is remembered."""
    limit = WrongTokens(0)
    assert all(guess(limit, "a", b"g%d" % number, 0.0) for number in range(1000))
    limit.right("a", b"known")
    assert limit.known() == 0


@given(st.lists(st.tuples(st.integers(0, 500), st.integers(0, 500), st.booleans()), max_size=300))
def test_memory_is_bounded(shown: list[tuple[int, int, bool]]) -> None:
    """Whatever comes from however many addresses."""
    limit = WrongTokens(PER_MIN, most=10)
    for number, (address, token, right) in enumerate(shown):
        if right:
            limit.right(str(address), b"r%d" % token)
        else:
            guess(limit, str(address), b"w%d" % token, float(number))
    assert limit.known() <= 30
