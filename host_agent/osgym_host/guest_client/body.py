"""Memory for the body of an answer: taken as it comes, given back to the system when it is dropped.

Large bodies lie in mappings of their own. From the heap of the process they would have to be zeroed and
moved as they grow, in one go while nothing else runs, and what was freed would stay with the process.
"""

from __future__ import annotations

import mmap

Body = bytes | bytearray | memoryview
"""Bytes of an answer; a memoryview for large ones, so that nobody copies them by accident."""

SMALL_BYTES = 1024 * 1024
"""Up to here a body is a bytearray."""
PIECE_BYTES = 256 * 1024
"""What is read in one go at most; copying it takes some 50 µs."""


class BodyBuffer:
    """Takes up to `limit` bytes. Pages that were never written to cost nothing, whatever was announced."""

    __slots__ = ("_limit", "_memory", "length")

    def __init__(self, limit: int, announced: int = 0) -> None:
        """Begin empty; `announced` is the length to expect, 0 if unknown."""
        self._limit = limit
        self.length = 0
        first = min(announced or 64 * 1024, limit)
        self._memory: bytearray | mmap.mmap = bytearray(first) if first <= SMALL_BYTES else _mapped(limit)

    def room(self, most: int) -> memoryview:
        """Return the place for the next bytes: at least one, at most `most` and `PIECE_BYTES`.

        The caller must not ask for more than the limit leaves, must say with `filled` how much it wrote,
        and must have dropped the view by then.
        """
        if self.length == len(self._memory):
            self._grow()
        return memoryview(self._memory)[self.length : self.length + min(most, PIECE_BYTES)]

    def filled(self, count: int) -> None:
        """Note that `count` more bytes are there."""
        self.length += count

    def add(self, data: bytes | bytearray | memoryview) -> None:
        """Append bytes, which must fit."""
        while data:
            with self.room(len(data)) as place:
                count = len(place)
                place[:] = data[:count]
            self.filled(count)
            data = data[count:]

    def drop(self) -> None:
        """Give the memory back now: an exception may keep its reader for long."""
        self._memory, self.length = bytearray(), 0

    def taken(self) -> Body:
        """Return what is there; the buffer must not be used any more."""
        if isinstance(self._memory, bytearray):
            del self._memory[self.length :]
            return self._memory
        return memoryview(self._memory)[: self.length].toreadonly()

    def _grow(self) -> None:
        size = len(self._memory)
        if isinstance(self._memory, bytearray) and 2 * size <= SMALL_BYTES:
            self._memory.extend(bytes(min(size, self._limit - size)))
        else:
            larger = _mapped(self._limit)
            larger[:size] = self._memory
            self._memory = larger


def _mapped(size: int) -> mmap.mmap:
    return mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
