"""Dictionary of bounded size that several clients fill. Pure.

When it is full, the client with the most entries loses its oldest one. No client can evict another's entries
by adding many of its own.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class FairDict(Generic[K, V]):
    """Values by key, each stored by a client."""

    def __init__(self, most: int, removable: Callable[[V], bool] = lambda _: True) -> None:
        """Start empty.

        Args:
            most: Number of entries that are kept.
            removable: Predicate that says whether a value may be evicted.
        """
        self._most = most
        self._removable = removable
        self._clients: dict[Hashable, OrderedDict[K, V]] = {}
        self._client_of: dict[K, Hashable] = {}

    def __len__(self) -> int:
        return len(self._client_of)

    def get(self, key: K) -> V | None:
        """Return the value of a key; None without one."""
        client = self._client_of.get(key)
        return self._clients[client][key] if key in self._client_of else None

    def put(self, key: K, value: V, client: Hashable) -> None:
        """Store a value as the client's newest entry; a previous value of the key is replaced."""
        self.remove(key)
        self._client_of[key] = client
        self._clients.setdefault(client, OrderedDict())[key] = value
        while len(self) > self._most and self._evict_one():
            pass

    def remove(self, key: K) -> None:
        """Forget a key. An unknown key is no error."""
        if key not in self._client_of:
            return
        client = self._client_of.pop(key)
        entries = self._clients[client]
        del entries[key]
        if not entries:
            del self._clients[client]

    def _evict_one(self) -> bool:
        largest = max(self._clients.values(), key=len)
        oldest = next((key for key, value in largest.items() if self._removable(value)), None)
        if oldest is None:
            return False
        self.remove(oldest)
        return True
