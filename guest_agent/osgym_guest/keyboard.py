"""Keyboard: maps symbols to keys, and gives spare keys the symbols that the layout lacks.

The pool of spare keys is the longest run of neighbouring key codes that the layout leaves free or gives to
multimedia keys only. A symbol that no key of the layout types, in any of its groups, is put on a code of the
pool, two symbols to a code (plain and with Shift). It stays there until the code is needed for another, so
text in one script remaps once. The pool is a run because each request makes every client and the window
manager read the keyboard map anew, and one request changes all codes in between.

Applications look at the keyboard map when they process a key press, not when it happened. So a code is given
to another symbol only after the applications have processed what was typed, and used only after they have
processed the change; the caller's `drained` waits for that.

`osgym_guest.typing_pace` decides where a text waits for its reader.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from osgym_guest._native import Display
from osgym_guest.typing_pace import TextReader, TypingPace
from osgym_protocol.keysyms import KEYSYMS, char_keysym

SHIFT, CAPS_LOCK = KEYSYMS["Shift_L"], KEYSYMS["Caps_Lock"]
LOCK_MASK = 2
GROUP_SHIFT, GROUP_MASK = 13, 3
"""Bits of the keyboard's state that hold the number of the layout's group in use (X Keyboard Extension)."""
LEVELS = 2
MAX_POOL_CODES = 48
FIRST_MULTIMEDIA, LAST_MULTIMEDIA = 0x10080000, 0x1008FFFF
FIRST_ACTION, LAST_ACTION = 0x1008FE00, 0x1008FEFF
"""Symbols at which the X server acts itself, such as the change of the console at Ctrl+Alt+F1."""
LOWEST_POOL_CODE = 9
"""Lowest code of the pool. Some clients take code 8 for "no key"."""
POSITION_CODES = frozenset([124, 141, 143, 145, 150, 151, 164, 166, 167, 180, 181, 225])
"""Keys on whose position Chromium acts, whatever symbol is on them (power, copy, paste, cut, sleep, wake,
favourites, back, forward, home, reload, search; evdev codes), found by trying all codes.
"""


class KeyboardError(RuntimeError):
    """A symbol that neither the layout nor the pool can type."""


def choose_pool(first: int, rows: list[list[int]], modifiers: Iterable[int]) -> range:
    """Return the longest run of codes that no ordinary key uses.

    Args:
        first: Code of the first row.
        rows: Symbols of each code.
        modifiers: Codes of modifier keys, which are never used (nor are POSITION_CODES).
    """
    taken = POSITION_CODES.union(modifiers)
    ordinary: dict[int, int] = {}
    for code, row in enumerate(rows, first):
        for symbol in set(row):
            if symbol and not FIRST_MULTIMEDIA <= symbol <= LAST_MULTIMEDIA:
                ordinary.setdefault(symbol, code)
    best = range(0)
    start = max(first, LOWEST_POOL_CODE)
    for code, row in enumerate([*rows, [1]], first):
        # a symbol that a lower code types as well is not lost
        free = code not in taken and not any(ordinary.get(symbol) == code for symbol in row)
        if free and code < first + len(rows):
            continue
        if code - start > len(best):
            best = range(start, code)
        start = max(code + 1, LOWEST_POOL_CODE)
    return best[-MAX_POOL_CODES:]


def symbols_of_group(row: list[int], group: int) -> list[int]:
    """Return the symbols that a key types for every client in a group of the layout, plain and with Shift.

    Outside the first group these are only keys that have the same symbols in all groups: clients that know
    nothing of groups (no X Keyboard Extension) take the others for those of the first one.

    Args:
        row: Symbols that the core protocol reports for the key: two of the first group, two of the second,
            then two of each further group. A key with more than two symbols in a group has them in between,
            at no fixed place.
        group: Number of the group, from 0.
    """
    first, second = row[:LEVELS], row[LEVELS : 2 * LEVELS]
    if group == 0:
        return first
    if group == 1:
        return first if not any(second) or second == first else []
    others = [symbol for symbol in row if symbol and not FIRST_ACTION <= symbol <= LAST_ACTION]
    pairs = [row[at : at + LEVELS] for at in range(LEVELS, len(row), LEVELS)]
    is_same = all(pair == first[: len(pair)] or not any(pair) for pair in pairs)
    return first if is_same or set(others) == {first[0]} else []


class Keyboard:
    """Keys of one display.

    Args:
        display: Display whose keys are pressed.
        drained: Waits until the applications have processed the events sent so far.
        reader: Program into which texts are typed.
    """

    def __init__(self, display: Display, drained: Callable[[], None], reader: TextReader) -> None:
        self._display = display
        self._drained = drained
        self._reader = reader
        self._layout: dict[int, tuple[int, int]] = {}
        self._pool = range(0)
        self._held: dict[int, list[int]] = {}
        """Symbols on the codes of the pool, the least recently used code first."""
        self._original: dict[int, list[int]] = {}
        self._where: dict[int, tuple[int, int]] = {}
        self._used_since_drain: set[int] = set()
        self._loaded = False
        self._group = 0
        self._is_locked = False

    def load(self) -> None:
        """Read the state of the keyboard, and the layout unless it is unchanged."""
        state = self._display.pointer()[2]
        self._is_locked = bool(state & LOCK_MASK)
        group = state >> GROUP_SHIFT & GROUP_MASK
        if self._loaded and group == self._group and not self._display.keymap_stale():
            return
        self._group = group
        first, rows = self._display.keymap()
        intact = all(rows[code - first][:LEVELS] == held for code, held in self._held.items())
        if not intact or not self._loaded:
            self._held.clear()
            self._where.clear()
            self._pool = choose_pool(first, rows, self._display.modifier_codes())
            self._original = {code: rows[code - first][: 2 * LEVELS] for code in self._pool}
        self._layout = {}
        for code, row in enumerate(rows, first):
            if code in self._pool:
                continue
            symbols = symbols_of_group(row, group)
            for level, symbol in enumerate(symbols):
                if symbol:
                    self._layout.setdefault(symbol, (code, level))
            if len(symbols) > 1 and symbols[1] == 0 and ord("a") <= symbols[0] <= ord("z"):
                self._layout.setdefault(symbols[0] - 0x20, (code, 1))
        self._loaded = True

    def key(self, keysym: int) -> tuple[int, int]:
        """Return code and level (0 plain, 1 with Shift) that type a symbol, by the layout that was loaded
        last.

        A code of the pool is remapped if need be.

        Raises:
            KeyboardError: No code is left for the symbol.
        """
        found = self._find(keysym)
        if found is None:
            self._assign([keysym], keep=set())
            found = self._where[keysym]
        return found

    def _find(self, keysym: int) -> tuple[int, int] | None:
        found = self._layout.get(keysym)
        if found is None:
            found = self._where.get(keysym)
            if found is not None:  # used last
                self._held[found[0]] = self._held.pop(found[0])
        return found

    def press(self, code: int, down: bool) -> None:
        self._display.key(code, down)
        if down:
            self._used_since_drain.add(code)

    def type_text(self, text: str) -> None:
        """Type a text exactly, whatever the layout and Caps Lock are.

        Raises:
            KeyboardError: A symbol needs a key code and none is left.
        """
        self.load()
        shift_code, _ = self.key(SHIFT)
        # with Caps Lock on, clients turn letters around as they see fit: off for the time of the text
        lock = self._layout.get(CAPS_LOCK) if self._is_locked else None
        if lock is not None:
            self._tap(lock[0])
        try:
            text = text.replace("\r\n", "\n")
            pace = TypingPace(text, self._reader)
            for part in self._parts(text):
                self._type_part(part, shift_code, pace)
        finally:
            if lock is not None:
                self._tap(lock[0])

    def _tap(self, code: int) -> None:
        self.press(code, True)
        self.press(code, False)

    def _parts(self, text: str) -> list[str]:
        """Split a text into parts whose symbols fit into the pool."""
        capacity = len(self._pool) * LEVELS
        parts: list[str] = []
        start, missing = 0, set[str]()
        for at, char in enumerate(text):
            if char in missing or char_keysym(char) in self._layout:
                continue
            if len(missing) == capacity:
                parts.append(text[start:at])
                start, missing = at, set()
            missing.add(char)
        parts.append(text[start:])
        return parts

    def _type_part(self, text: str, shift_code: int, pace: TypingPace) -> None:
        keysyms = {char_keysym(char): None for char in text}
        needed = [keysym for keysym in keysyms if self._find(keysym) is None]
        if needed:
            self._assign(needed, keep=set(keysyms))
        shifted = False
        for char in text:
            found = self._find(char_keysym(char))
            if found is None:
                raise KeyboardError(f"no key produces the character {char!r}")
            code, level = found
            want = level == 1
            if shifted and not want:
                self._display.key(shift_code, False)
            pace.before_next()  # the program may look which keys are held while it acts on an Enter
            if want and not shifted:
                self._display.key(shift_code, True)
            shifted = want
            self._tap(code)
        if shifted:
            self._display.key(shift_code, False)

    def _assign(self, keysyms: list[int], keep: set[int]) -> None:
        """Assign symbols to codes of the pool: to free codes, then to the least recently used ones.

        Raises:
            KeyboardError: The pool is too small.
        """
        wanted = -(-len(keysyms) // LEVELS)
        codes = [code for code in self._pool if code not in self._held]
        codes += [code for code, held in self._held.items() if keep.isdisjoint(held)]
        if len(codes) < wanted:
            # what is to stay lies scattered: place all of it anew
            keysyms = list(dict.fromkeys([*keysyms, *(k for k in keep if k in self._where)]))
            wanted = -(-len(keysyms) // LEVELS)
            codes = list(self._pool)
        if len(codes) < wanted:
            raise KeyboardError("the keyboard has too few free key codes for this text")
        codes = codes[:wanted]
        if not self._used_since_drain.isdisjoint(codes):
            self._drained()
            self._used_since_drain.clear()
        for code in codes:
            for symbol in self._held.pop(code, []):
                self._where.pop(symbol, None)
        for at, code in enumerate(codes):
            symbols = keysyms[at * LEVELS : (at + 1) * LEVELS]
            self._held[code] = symbols if len(symbols) == LEVELS else symbols * LEVELS
            for level, symbol in enumerate(symbols):
                self._where[symbol] = (code, level)
        self._send(codes)
        # Chromium fetches the new map after it has heard of it, and would type the next key by the old
        self._drained()

    def _send(self, codes: Iterable[int]) -> None:
        """Send the symbols of some codes of the pool to the X server, in one request."""
        low, high = min(codes), max(codes)
        symbols: list[int] = []
        for code in range(low, high + 1):
            row = self._held.get(code, self._original[code])
            symbols += [*row, *[0] * (2 * LEVELS)][: 2 * LEVELS]
        self._display.remap(low, 2 * LEVELS, symbols)
        self._display.sync()

    def restore(self) -> None:
        """Restore the original symbols of the pool's codes."""
        if not self._held:
            return
        self._drained()
        self._used_since_drain.clear()
        codes = list(self._held)
        self._held.clear()
        self._where.clear()
        self._send(codes)
