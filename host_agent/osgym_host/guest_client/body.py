"""Memory for the body of an answer, returned to the system when it is dropped.

Large bodies have mappings of their own. The heap would zero and move a growing body at once, while no other
task runs, and the process would keep the freed memory.
"""

from __future__ import annotations

import mmap

Body = bytes | bytearray | memoryview
"""Bytes of an answer; a memoryview for large ones, so that nobody copies them by accident."""

SMALL_BYTES = 1024 * 1024
"""Size up to which a body is a bytearray."""
PIECE_BYTES = 256 * 1024
"""Most bytes of one read; copying them takes some 50 µs."""


class BodyBuffer:
    """Buffer of up to `limit` bytes. Pages that were never written cost nothing, whatever was announced."""

    __slots__ = ("_limit", "_memory", "length")

    def __init__(self, limit: int, announced: int = 0) -> None:
        """Start empty; `announced` is the expected length, 0 if unknown."""
        self._limit = limit
        self.length = 0
        first = min(announced or 64 * 1024, limit)
        self._memory: bytearray | mmap.mmap = bytearray(first) if first <= SMALL_BYTES else _mapped(limit)

    def room(self, most: int) -> memoryview:
        """Return the memory for the next bytes: at least one, at most `most` and `PIECE_BYTES`.

        The caller must not ask for more than the limit leaves, and must release the view before it calls
        `filled` with the number of bytes.
        """
        if self.length == len(self._memory):
            self._grow()
        return memoryview(self._memory)[self.length : self.length + min(most, PIECE_BYTES)]

    def filled(self, count: int) -> None:
        """Add `count` written bytes to the length."""
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
        """Free the memory at once, since an exception can keep its reader alive."""
        self._memory, self.length = bytearray(), 0

    def taken(self) -> Body:
        """Return the bytes; the buffer must not be used afterwards."""
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
