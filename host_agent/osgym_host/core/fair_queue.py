"""Queue in which clients take turns. Pure.

First come, first served among the requests of one client; among clients one request each in turn, however
many each has waiting. Clients take turns within their peer (the address they call from) and peers among
themselves, so that a peer gains nothing by giving itself many names.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ClientKey:
    """Client, for fair turns.

    Attributes:
        peer: Address of the request, which the client cannot choose.
        client: Name that the client gives itself; empty without one.
    """

    peer: str = ""
    client: str = ""


UNNAMED = ClientKey()
"""Key of all clients without a name or address."""


class FairQueue(Generic[T]):
    """Items of clients, handed out in turns. Peers and clients without items take no memory."""

    def __init__(self) -> None:
        self._peers: OrderedDict[str, OrderedDict[str, deque[T]]] = OrderedDict()
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, key: ClientKey, item: T) -> None:
        """Append an item; a client without waiting items gets its turn after all others."""
        self._peers.setdefault(key.peer, OrderedDict()).setdefault(key.client, deque()).append(item)
        self._count += 1

    def peek(self) -> T | None:
        """Return the next item without removing it; None if the queue is empty."""
        for clients in self._peers.values():
            for items in clients.values():
                return items[0]
        return None

    def pop(self) -> tuple[ClientKey, T]:
        """Remove and return the next item, which uses the turn of its client and peer.

        Raises:
            IndexError: Nothing waits.
        """
        if not self._peers:
            raise IndexError("nothing waits")
        peer, clients = next(iter(self._peers.items()))
        client, items = next(iter(clients.items()))
        item = items.popleft()
        self._count -= 1
        clients.move_to_end(client)
        self._peers.move_to_end(peer)
        key = ClientKey(peer, client)
        self._forget_empty(key)
        return key, item

    def put_back(self, key: ClientKey, item: T) -> None:
        """Undo a `pop`, so that the item is the next one again."""
        clients = self._peers.setdefault(key.peer, OrderedDict())
        clients.setdefault(key.client, deque()).appendleft(item)
        clients.move_to_end(key.client, last=False)
        self._peers.move_to_end(key.peer, last=False)
        self._count += 1

    def remove(self, key: ClientKey, item: T) -> bool:
        """Remove a cancelled item; return whether it was in the queue."""
        items = self._peers.get(key.peer, OrderedDict()).get(key.client, deque())
        if item not in items:
            return False
        items.remove(item)
        self._count -= 1
        self._forget_empty(key)
        return True

    def _forget_empty(self, key: ClientKey) -> None:
        clients = self._peers[key.peer]
        if not clients[key.client]:
            del clients[key.client]
        if not clients:
            del self._peers[key.peer]
