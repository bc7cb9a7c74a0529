"""The table of connections: how many there are, and which one makes way. Without sockets."""

from __future__ import annotations

from typing import cast

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from osgym_host.connections import Connection, ConnectionBounds, ConnectionTable, _network_of

TOTAL, PER_ADDRESS = 6, 4
ADDRESSES = ("10.0.0.1", "10.0.0.2", "10.0.0.3")


class Peer:
    """What the table needs of a connection."""

    def __init__(self, table: ConnectionTable, address: str) -> None:
        self.table = table
        self.address = address
        self.alive = True

    def abort(self) -> None:
        assert self.alive
        self.alive = False
        self.table.busy(self._me)
        self.table.gone(self.address)

    @property
    def _me(self) -> Connection:
        return cast(Connection, self)


class Table(RuleBasedStateMachine):
    """Whatever connects, waits and ends: bounds are kept, and only those that wait make way."""

    def __init__(self) -> None:
        super().__init__()
        self.table = ConnectionTable(ConnectionBounds(TOTAL, PER_ADDRESS))
        self.peers: list[Peer] = []
        self.busy: set[Peer] = set()
        self.waiting: list[tuple[str, Peer]] = []

    def _alive(self) -> list[Peer]:
        return [peer for peer in self.peers if peer.alive]

    @rule(address=st.sampled_from(ADDRESSES))
    def connect(self, address: str) -> None:
        before = self._alive()
        same = [p for p in before if p.address == address]
        admitted = self.table.admit(address)
        ended = [p for p in before if not p.alive]
        assert not any(p in self.busy for p in ended)
        if len(same) >= PER_ADDRESS:
            assert admitted == any(p not in self.busy for p in same)
            assert all(p.address == address for p in ended)
        elif len(before) >= TOTAL:
            assert admitted == any(p not in self.busy for p in before)
        else:
            assert admitted and not ended
        self.waiting = [(kind, p) for kind, p in self.waiting if p.alive]
        if admitted:
            peer = Peer(self.table, address)
            self.peers.append(peer)
            self.table.half_open(cast(Connection, peer))
            self.waiting.append(("half", peer))

    @rule(data=st.data())
    def request(self, data: st.DataObject) -> None:
        if alive := self._alive():
            peer = data.draw(st.sampled_from(alive))
            self.table.busy(cast(Connection, peer))
            self.busy.add(peer)

    @rule(data=st.data())
    def answered(self, data: st.DataObject) -> None:
        if busy := [p for p in self._alive() if p in self.busy]:
            peer = data.draw(st.sampled_from(busy))
            self.busy.discard(peer)
            self.table.idle(cast(Connection, peer))

    @rule(data=st.data())
    def end(self, data: st.DataObject) -> None:
        if alive := self._alive():
            peer = data.draw(st.sampled_from(alive))
            self.busy.discard(peer)
            peer.abort()

    @invariant()
    def the_bounds_hold(self) -> None:
        alive = self._alive()
        assert self.table.count == len(alive) <= TOTAL
        for address in ADDRESSES:
            assert sum(p.address == address for p in alive) <= PER_ADDRESS


TestTable = Table.TestCase


def test_who_has_sent_nothing_makes_way_before_who_has_had_answers() -> None:
    """The half-open ones first, each kind in the order in which it began to wait."""
    table = ConnectionTable(ConnectionBounds(4, 4))
    idle, first, second, busy = (Peer(table, "a") for _ in range(4))
    for peer in (idle, first, second, busy):
        assert table.admit("a")
        table.half_open(cast(Connection, peer))
    table.idle(cast(Connection, idle))
    table.busy(cast(Connection, busy))
    order = []
    for _ in range(3):
        assert table.admit("a")
        order.append(next(p for p in (idle, first, second) if not p.alive and p not in order))
    assert order == [first, second, idle]
    assert not table.admit("a") and busy.alive


@pytest.mark.parametrize(
    ("peer", "counted"),
    [
        (("127.0.0.1", 5), "127.0.0.1"),
        (("::ffff:10.0.0.1", 5, 0, 0), "::ffff:10.0.0.1"),
        (("2001:db8::1", 5, 0, 0), "2001:db8::/64"),
        (("2001:db8::ffff:2", 5, 0, 0), "2001:db8::/64"),
        (("fe80::1%eth0", 5, 0, 2), "fe80::/64"),
    ],
)
def test_addresses_of_one_owner_count_together(peer: tuple[object, ...], counted: str) -> None:
    """Whoever has an IPv6 address has all of its /64."""
    assert _network_of(peer) == counted


def test_bounds_follow_the_descriptors() -> None:
    """Unless they are set."""
    bounds = ConnectionBounds.of(0, 0)
    assert 0 < bounds.per_address < bounds.total <= 16384
    assert ConnectionBounds.of(10, 0) == ConnectionBounds(10, 7)
    assert ConnectionBounds.of(10, 10) == ConnectionBounds(10, 10)
