"""A dictionary of bounded size that several clients fill. Pure.

When it is full, the client that has most in it loses its oldest entry, so that nobody can push out what
others have put in.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class FairDict(Generic[K, V]):
    """Values by key, each put in by a client."""

    def __init__(self, most: int, removable: Callable[[V], bool] = lambda _: True) -> None:
        """Begin empty.

        Args:
            most: Number of entries that are kept.
            removable: Called with a value: whether the dictionary may lose it by itself.
        """
        self._most = most
        self._removable = removable
        self._clients: dict[Hashable, OrderedDict[K, V]] = {}
        self._client_of: dict[K, Hashable] = {}

    def __len__(self) -> int:
        """Return the number of entries."""
        return len(self._client_of)

    def get(self, key: K) -> V | None:
        """Return what is kept under a key."""
        client = self._client_of.get(key)
        return self._clients[client][key] if key in self._client_of else None

    def put(self, key: K, value: V, client: Hashable) -> None:
        """Keep a value as the client's newest, in the place of another of this key."""
        self.remove(key)
        self._client_of[key] = client
        self._clients.setdefault(client, OrderedDict())[key] = value
        while len(self) > self._most and self._lose_one():
            pass

    def remove(self, key: K) -> None:
        """Forget a key; one that is not there is fine."""
        if key not in self._client_of:
            return
        client = self._client_of.pop(key)
        entries = self._clients[client]
        del entries[key]
        if not entries:
            del self._clients[client]

    def _lose_one(self) -> bool:
        largest = max(self._clients.values(), key=len)
        oldest = next((key for key, value in largest.items() if self._removable(value)), None)
        if oldest is None:
            return False
        self.remove(oldest)
        return True
