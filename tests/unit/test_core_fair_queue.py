"""The queue of those who wait for replicas: in turns, nothing lost, nothing twice."""

from __future__ import annotations

import itertools
from collections import deque

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from osgym_host.core.fair_queue import ClientKey, FairQueue

keys = st.builds(ClientKey, st.sampled_from("ab"), st.sampled_from("xyz"))


def test_one_of_many_waits_for_one_turn_of_the_other() -> None:
    """Thirty-two requests of one client are no reason for another's single one to wait for all of them."""
    queue: FairQueue[str] = FairQueue()
    for number in range(32):
        queue.add(ClientKey("host", "greedy"), f"greedy {number}")
    assert queue.pop()[1] == "greedy 0"
    queue.add(ClientKey("host", "modest"), "modest")
    assert [queue.pop()[1] for _ in range(3)] == ["greedy 1", "modest", "greedy 2"]


def test_names_that_a_client_makes_up_gain_its_peer_nothing() -> None:
    """Peers take turns too: another address has every second replica, whatever names are given."""
    queue: FairQueue[str] = FairQueue()
    for number in range(32):
        queue.add(ClientKey("10.0.0.1", f"name {number}"), "many")
    for _ in range(3):
        queue.add(ClientKey("10.0.0.2", ""), "one")
    assert [queue.pop()[1] for _ in range(6)] == ["many", "one"] * 3


def test_nothing_waits() -> None:
    """Taking from an empty queue is an error of the caller."""
    with pytest.raises(IndexError):
        FairQueue[str]().pop()
    assert FairQueue[str]().peek() is None


@given(st.lists(keys, max_size=30))
def test_each_client_is_served_in_the_order_of_its_asking(asked: list[ClientKey]) -> None:
    """And none twice before all that wait at its peer had their turn."""
    queue: FairQueue[int] = FairQueue()
    for number, key in enumerate(asked):
        queue.add(key, number)
    served = [queue.pop() for _ in asked]
    assert sorted(number for _, number in served) == list(range(len(asked)))
    for key in set(asked):
        numbers = [number for who, number in served if who == key]
        assert numbers == sorted(numbers)
        places = [place for place, (who, _) in enumerate(served) if who == key]
        for place, after in itertools.pairwise(places):
            others = {who for who, _ in served[after:] if who.peer == key.peer and who != key}
            assert others <= {who for who, _ in served[place + 1 : after]}


class QueueMachine(RuleBasedStateMachine):
    """Adds, takes, puts back and gives up in any order, beside a plain list."""

    def __init__(self) -> None:
        super().__init__()
        self.queue: FairQueue[int] = FairQueue()
        self.waiting: dict[ClientKey, deque[int]] = {}
        self.count = 0

    @rule(key=keys)
    def add(self, key: ClientKey) -> None:
        self.queue.add(key, self.count)
        self.waiting.setdefault(key, deque()).append(self.count)
        self.count += 1

    @precondition(lambda self: len(self.queue) > 0)
    @rule(back=st.booleans())
    def pop(self, back: bool) -> None:
        expected = self.queue.peek()
        key, item = self.queue.pop()
        assert item == expected
        assert self.waiting[key].popleft() == item
        if back:
            self.queue.put_back(key, item)
            assert self.queue.pop() == (key, item)

    @rule(key=keys, item=st.integers(0, 20))
    def remove(self, key: ClientKey, item: int) -> None:
        there = item in self.waiting.get(key, ())
        assert self.queue.remove(key, item) is there
        if there:
            self.waiting[key].remove(item)

    @invariant()
    def counts_agree_and_nothing_empty_is_kept(self) -> None:
        assert len(self.queue) == sum(len(items) for items in self.waiting.values())
        assert all(items for clients in self.queue._peers.values() for items in clients.values())
        assert all(self.queue._peers.values())


TestQueueMachine = QueueMachine.TestCase
