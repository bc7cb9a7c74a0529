"""The keyboard: which key types which symbol, and keys of our own for what the layout lacks.

Key codes that the layout leaves free are our pool. A symbol that no key types is put on one of them,
two symbols to a code (plain and with Shift), and stays there until the code is needed for another:
text in one script then remaps once. Applications look at the keyboard map when they come to the key
press, not when it happened, so a code is given to another symbol only after the application has
worked off what was typed; the caller's `drained` waits for that.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

from osgym_guest._native import Display
from osgym_guest.keysyms import KEYSYMS, char_keysym

SHIFT = KEYSYMS["Shift_L"]
LOCK_MASK = 2
LEVELS = 2
MAX_POOL = 32
RESERVED_CODES = frozenset([8])
"""Code 8 is the lowest one; some clients take it for "no key"."""


class KeyboardError(RuntimeError):
    """The layout and the pool together cannot type a symbol."""


class Keyboard:
    """Keys of one display.

    Args:
        display: where the keys are pressed.
        drained: waits until the applications have worked off the events sent so far.
    """

    def __init__(self, display: Display, drained: Callable[[], None]) -> None:
        self._display = display
        self._drained = drained
        self._layout: dict[int, tuple[int, int]] = {}
        self._pool: OrderedDict[int, list[int]] = OrderedDict()
        self._where: dict[int, tuple[int, int]] = {}
        self._used_since_drain: set[int] = set()
        self._loaded = False

    def load(self) -> None:
        """Read the layout again, if it is not ours already."""
        if self._loaded and not self._display.keymap_stale():
            return
        first, rows = self._display.keymap()
        ours = {code: tuple(symbols) for code, symbols in self._pool.items()}
        intact = all(tuple(rows[code - first][:LEVELS]) == symbols for code, symbols in ours.items())
        if not intact:
            self._pool.clear()
            self._where.clear()
        self._layout = {}
        free: list[int] = []
        for code, row in enumerate(rows, first):
            if code in self._pool:
                continue
            if not any(row):
                if code not in RESERVED_CODES:
                    free.append(code)
                continue
            for level, symbol in enumerate(row[:LEVELS]):
                if symbol:
                    self._layout.setdefault(symbol, (code, level))
            if len(row) > 1 and row[1] == 0 and 0x61 <= row[0] <= 0x7A:
                self._layout.setdefault(row[0] - 0x20, (code, 1))
        for code in reversed(free[-MAX_POOL:]):
            self._pool.setdefault(code, [0] * LEVELS)
        self._loaded = True

    def key(self, keysym: int) -> tuple[int, int]:
        """Code and level (0 plain, 1 with Shift) that type a symbol; remaps one if need be."""
        self.load()
        found = self._find(keysym)
        if found is None:
            self._assign([keysym])
            found = self._where[keysym]
        return found

    def _find(self, keysym: int) -> tuple[int, int] | None:
        found = self._layout.get(keysym)
        if found is None:
            found = self._where.get(keysym)
            if found is not None:
                self._pool.move_to_end(found[0])
        return found

    def press(self, code: int, down: bool) -> None:
        """Press or release a key by its code."""
        self._display.key(code, down)
        if down:
            self._used_since_drain.add(code)

    def type_text(self, text: str) -> None:
        """Type a text exactly, whatever the layout and Caps Lock are.

        Raises:
            KeyboardError: there is no free key code at all for a symbol that needs one.
        """
        self.load()
        shift_code, _ = self.key(SHIFT)
        locked = bool(self._display.pointer()[2] & LOCK_MASK)
        for part in self._parts(text):
            self._type_part(part, shift_code, locked)

    def _parts(self, text: str) -> list[str]:
        """Cut a text where the pool cannot hold all its symbols at once; long texts also else."""
        capacity = len(self._pool) * LEVELS
        parts: list[str] = []
        start, missing = 0, set[str]()
        for at, char in enumerate(text):
            if char_keysym(char) in self._layout or char in missing:
                continue
            if len(missing) == capacity:
                parts.append(text[start:at])
                start, missing = at, set()
            missing.add(char)
        parts.append(text[start:])
        return parts

    def _type_part(self, text: str, shift_code: int, locked: bool) -> None:
        needed: list[int] = []
        for char in dict.fromkeys(text):
            keysym = char_keysym(char)
            if self._find(keysym) is None:
                needed.append(keysym)
        if needed:
            self._assign(needed, keep={char_keysym(char) for char in set(text)})
        shifted = False
        for char in text:
            found = self._find(char_keysym(char))
            if found is None:
                raise KeyboardError(f"no key types {char!r}")
            code, level = found
            want = level == 1
            if locked and char.isalpha() and char.lower() != char.upper() and len(char.upper()) == 1:
                want = not want
            if want != shifted:
                self._display.key(shift_code, want)
                shifted = want
            self.press(code, True)
            self.press(code, False)
        if shifted:
            self._display.key(shift_code, False)

    def _assign(self, keysyms: list[int], keep: set[int] | None = None) -> None:
        """Put symbols on the codes of the pool that were not used for longest."""
        keep = keep or set()
        codes = [code for code, held in self._pool.items() if not any(symbol in keep for symbol in held)]
        codes = codes[: (len(keysyms) + LEVELS - 1) // LEVELS]
        if len(codes) * LEVELS < len(keysyms):
            # the symbols to keep are scattered: start over with all of them
            keysyms = list(dict.fromkeys([*keysyms, *(k for k in keep if k in self._where)]))
            codes = list(self._pool)[: (len(keysyms) + LEVELS - 1) // LEVELS]
        if len(codes) * LEVELS < len(keysyms):
            raise KeyboardError("the keyboard has too few free key codes for this text")
        if any(code in self._used_since_drain for code in codes):
            self._drained()
            self._used_since_drain.clear()
        changed: dict[int, list[int]] = {}
        queue = list(keysyms)
        for code in codes:
            for symbol in self._pool[code]:
                self._where.pop(symbol, None)
            symbols = queue[:LEVELS]
            del queue[: len(symbols)]
            # a lone symbol is on both levels, so that a held Shift does not lose it
            row = symbols if len(symbols) == LEVELS else symbols * LEVELS
            for level, symbol in reversed(list(enumerate(row))):
                self._where[symbol] = (code, level)
            self._pool[code] = row
            self._pool.move_to_end(code)
            changed[code] = row
        self._send(changed)

    def _send(self, changed: dict[int, list[int]]) -> None:
        """Tell the X server, with one request for each run of neighbouring codes."""
        codes = sorted(changed)
        while codes:
            run = 1
            while run < len(codes) and codes[run] == codes[0] + run:
                run += 1
            symbols = [symbol for code in codes[:run] for symbol in changed[code]]
            self._display.remap(codes[0], LEVELS, symbols)
            del codes[:run]
        self._display.sync()

    def restore(self) -> None:
        """Free the codes of the pool again."""
        used = {code: [0] * LEVELS for code, symbols in self._pool.items() if any(symbols)}
        if not used:
            return
        self._drained()
        self._used_since_drain.clear()
        self._send(used)
        for code in used:
            self._pool[code] = [0] * LEVELS
        self._where.clear()
