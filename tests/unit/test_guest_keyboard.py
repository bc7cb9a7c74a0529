"""The pool of key codes and what is put on them, against a keyboard map in memory."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from osgym_guest.keyboard import (
    LEVELS,
    MAX_POOL_CODES,
    Keyboard,
    choose_pool,
    symbols_of_group,
)
from osgym_guest.typing_pace import READ_LEAST_S, READ_S, READ_TOTAL_S, TextReader
from osgym_protocol.keysyms import KEYSYMS, char_keysym

FIRST = 8
SHIFT_CODE, LOCK_CODE = 50, 66


class Keys:
    """What `Keyboard` asks of a display, and a client that reads the map when it comes to a key."""

    def __init__(self, free: range, locked: bool = False) -> None:
        self.rows = [[0] * 4 for _ in range(248)]
        for at, char in enumerate("abcdefghijklmnopqrstuvwxyz"):
            self.rows[20 + at] = [ord(char), ord(char) - 32, 0, 0]
        self.rows[10] = [KEYSYMS["Return"], 0, 0, 0]
        self.rows[11] = [0x20, 0, 0, 0]
        self.rows[SHIFT_CODE - FIRST] = [KEYSYMS["Shift_L"], 0, 0, 0]
        self.rows[LOCK_CODE - FIRST] = [KEYSYMS["Caps_Lock"], 0, 0, 0]
        for code in range(FIRST, FIRST + len(self.rows)):
            if not any(self.rows[code - FIRST]) and code not in free:
                self.rows[code - FIRST] = [0x40000000 + code, 0, 0, 0]
        self.locked = locked
        self.pending: list[tuple[int, bool, bool]] = []
        self._shifted = False
        self.group = 0
        self.typed = ""
        self.is_terminal = True
        self.window = 7
        self.read_at: list[str] = []
        self.requests = 0

    def keymap(self) -> tuple[int, list[list[int]]]:
        return FIRST, [list(row) for row in self.rows]

    def keymap_stale(self) -> bool:
        return True

    def modifier_codes(self) -> bytes:
        return bytes([SHIFT_CODE, 0])

    def pointer(self) -> tuple[int, int, int]:
        return 0, 0, (2 if self.locked else 0) | self.group << 13

    def sync(self) -> None:
        pass

    def remap(self, first: int, per: int, symbols: list[int]) -> None:
        self.requests += 1
        for at in range(len(symbols) // per):
            self.rows[first - FIRST + at] = symbols[at * per : (at + 1) * per]

    def key(self, code: int, down: bool) -> None:
        if code == LOCK_CODE and down:
            self.locked = not self.locked
        self.pending.append((code, down, self.locked))

    def work_off(self) -> None:
        """The slow client: it looks at the map only now."""
        for code, down, locked in self.pending:
            if code == SHIFT_CODE:
                self._shifted = down
            elif down and code != LOCK_CODE:
                self.typed += self._char(self.rows[code - FIRST], self._shifted, locked)
        self.pending = []

    def wait(self, max_s: float) -> None:
        """The client is waited for in the middle of a text."""
        assert max_s > 0
        self.work_off()
        self.read_at.append(self.typed)

    def look(self) -> tuple[int, bool]:
        return self.window, self.is_terminal

    def _char(self, row: list[int], shifted: bool, locked: bool) -> str:
        if self.group and any(row[2:]):
            row = row[2 * self.group :]
        symbol = row[1] if shifted and row[1] else row[0]
        if symbol == KEYSYMS["Return"]:
            return "\n"
        char = chr(symbol & 0xFFFFFF)
        return char.swapcase() if locked else char


def keyboard(keys: Keys) -> Keyboard:
    reader = TextReader(keys.look, keys.wait)
    return Keyboard(keys, keys.work_off, reader)  # type: ignore[arg-type] # the few methods it uses


def test_the_pool_is_one_run_without_ordinary_keys() -> None:
    """Free and multimedia codes are taken, modifiers and keys of the layout are not."""
    keys = Keys(range(184, 225))
    keys.rows[210 - FIRST] = [0x1008FF13, 0, 0, 0]
    assert choose_pool(FIRST, keys.rows, [SHIFT_CODE]) == range(184, 225)
    keys.rows[190 - FIRST] = [KEYSYMS["Hyper_L"], 0, 0, 0]
    assert choose_pool(FIRST, keys.rows, [SHIFT_CODE]) == range(191, 225)
    assert choose_pool(FIRST, keys.rows, [SHIFT_CODE, 204]) == range(205, 225)


def test_keys_that_browsers_know_by_their_position_are_left_alone() -> None:
    """A free code between them does not help: its neighbours are not in the pool."""
    keys = Keys(range(208, 256))
    assert choose_pool(FIRST, keys.rows, [SHIFT_CODE]) == range(226, 256)


def test_the_pool_is_bounded() -> None:
    """An almost empty layout does not make a huge request."""
    assert len(choose_pool(FIRST, [[0]] * 248, [])) == MAX_POOL_CODES


def test_known_symbols_are_not_mapped_again() -> None:
    """The same script a second time changes nothing; one request maps all of it."""
    keys = Keys(range(226, 256))
    board = keyboard(keys)
    for _ in range(3):
        board.type_text("Привет, мир\n".replace(",", ""))
    assert keys.requests == 1


def test_restore_gives_the_codes_back() -> None:
    """Afterwards the map is what it was."""
    keys = Keys(range(226, 256))
    keys.rows[240 - FIRST] = [0x1008FF13, 0, 0, 0]
    before = keys.keymap()
    board = keyboard(keys)
    board.type_text("漢字かな")
    assert keys.keymap() != before
    board.restore()
    assert keys.keymap() == before


TEXT = st.text(alphabet=st.sampled_from("abyzABYZ \näöüßЖжЩщ漢字仮名交文😀€∀∃λ"), max_size=60)


@settings(max_examples=300, deadline=None)
@given(texts=st.lists(TEXT, max_size=4), pool=st.integers(2, 12), locked=st.booleans())
def test_a_slow_client_still_gets_every_text(texts: list[str], pool: int, locked: bool) -> None:
    """Codes are given to other symbols only after what was typed with them has been worked off."""
    keys = Keys(range(230, 230 + pool), locked=locked)
    board = keyboard(keys)
    for text in texts:
        board.type_text(text)
    keys.work_off()
    assert keys.typed == "".join(texts)
    assert keys.locked == locked


def test_keys_that_act_wait_for_the_text_before_and_hold_back_the_text_behind() -> None:
    """Enter and Tab come when what stands before was read; a line break of two characters is one Enter."""
    keys = Keys(range(240, 250))
    keys.rows[12] = [KEYSYMS["Tab"], 0, 0, 0]
    keyboard(keys).type_text("ab\r\ncd")
    assert keys.read_at == ["ab", "ab\n"] and keys.pending
    keys.work_off()
    assert keys.typed == "ab\ncd"
    keys.read_at = []
    keyboard(keys).type_text("x\n\ny")
    assert [text.removeprefix("ab\ncd") for text in keys.read_at] == ["x", "x\n", "x\n\n"]


def test_in_an_editor_only_the_first_key_that_acts_is_waited_for() -> None:
    """It changed nothing but a text."""
    keys = Keys(range(240, 250))
    keys.is_terminal = False
    keyboard(keys).type_text("a\nb\nc\nd\n")
    assert keys.read_at == ["a\n"]


@pytest.mark.parametrize("is_awaited", [True, False])
def test_a_character_of_two_units_waits_for_the_text_before(is_awaited: bool) -> None:
    """LibreOffice would put it before characters that it still collects; other editors need no wait."""
    keys = Keys(range(230, 250))
    keys.is_terminal = is_awaited
    keyboard(keys).type_text("ab 😀 c é")
    assert keys.read_at == ["ab "] * is_awaited
    keys.work_off()
    assert keys.typed == "ab 😀 c é"


def test_another_window_that_an_enter_opened_is_waited_for_again() -> None:
    """What is typed behind is meant for it; it may be a dialog, or open one more."""
    keys = Keys(range(240, 250))
    keys.is_terminal = False

    def wait(max_s: float) -> None:
        keys.wait(max_s)
        keys.window = 8 if keys.typed.count("\n") == 1 else keys.window

    board = Keyboard(keys, keys.work_off, TextReader(keys.look, wait))  # type: ignore[arg-type]
    board.type_text("a\nb\nc\nd\n")
    assert keys.read_at == ["a\n", "a\nb\n"]


def test_shift_is_not_held_while_a_program_acts_on_an_enter() -> None:
    """A program that asks which keys are held would take the Enter for Shift+Enter."""
    keys = Keys(range(240, 250))
    held: list[bool] = []

    def wait(max_s: float) -> None:
        keys.wait(max_s)
        held.append(keys._shifted)

    board = Keyboard(keys, keys.work_off, TextReader(keys.look, wait))  # type: ignore[arg-type]
    board.type_text("A\nB\nc")
    keys.work_off()
    assert keys.typed == "A\nB\nc"
    assert held == [False] * 4


def test_a_text_waits_only_so_long_for_a_program_that_does_not_read() -> None:
    """Each wait has a bound, and all of them together: a text of many lines is not typed for minutes."""
    keys = Keys(range(240, 250))
    waits: list[float] = []
    board = Keyboard(keys, keys.work_off, TextReader(keys.look, waits.append))  # type: ignore[arg-type]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("osgym_guest.typing_pace.time.monotonic", lambda: sum(waits))
        board.type_text("a\n" * 200)
    assert len(waits) == 399 and max(waits) == READ_S
    assert sum(waits) < READ_TOTAL_S + READ_S + 399 * READ_LEAST_S


RUSSIAN = dict(zip("abcdefghij", "фисвуапршо", strict=True))


@pytest.mark.parametrize("group", [0, 1])
def test_a_text_is_typed_right_whichever_group_of_the_layout_is_in_use(group: int) -> None:
    """Letters come from their keys in the first group, else from the pool."""
    keys = Keys(range(240, 255))
    for at, char in enumerate(RUSSIAN.values()):
        symbol = char_keysym(char)
        keys.rows[20 + at][2:] = [symbol, char_keysym(char.upper())]
    keys.group = group
    board = keyboard(keys)
    board.type_text("ab фиС AB\n")
    keys.work_off()
    assert keys.typed == "ab фиС AB\n"
    keys.group = 1 - group
    board.type_text("ab фиС\n")
    keys.work_off()
    assert keys.typed == "ab фиС AB\nab фиС\n"


def test_outside_the_first_group_only_keys_are_used_that_have_no_groups() -> None:
    """A client that knows nothing of groups reads the others as those of the first."""
    for group in (1, 2, 3):
        assert symbols_of_group([97, 65, 0x6C6, 0x6E6], group) == []
        assert symbols_of_group([0xFF0D, 0, 0, 0], group) == [0xFF0D, 0]
        assert symbols_of_group([0xFF0D, 0, 0xFF0D, 0], group) == [0xFF0D, 0]
    assert symbols_of_group([97, 65, 0x6C6, 0x6E6], 0) == [97, 65]


def test_a_key_that_differs_only_in_a_later_group_is_not_used_there() -> None:
    """The first two groups of `us,us,ru` are the same, the third is not."""
    letter = [97, 65, 97, 65, 0x6C6, 0x6E6]
    digit = [49, 33, 49, 33, 49, 33]
    swapped = [49, 33, 49, 33, 33, 49]
    function = [
        *[0xFFBE] * 6,
        0x1008FE01,
        0xFFBE,
        0xFFBE,
        0x1008FE01,
        0xFFBE,
        0xFFBE,
        0xFFBE,
        0xFFBE,
        0x1008FE01,
    ]
    assert [symbols_of_group(letter, group) for group in range(4)] == [[97, 65], [97, 65], [], []]
    assert symbols_of_group(digit, 2) == [49, 33] and symbols_of_group(swapped, 2) == []
    assert symbols_of_group(function, 2) == [0xFFBE, 0xFFBE]
    assert symbols_of_group([0xFF0D, 0, 0xFF0D, 0, 0xFF0D, 0], 2) == [0xFF0D, 0]


def test_two_symbols_fit_on_a_code() -> None:
    """Plain and with Shift."""
    keys = Keys(range(240, 242))
    board = keyboard(keys)
    board.load()
    places = {board.key(char_keysym(char)) for char in "жщ漢字"}
    assert len(places) == 2 * LEVELS or keys.requests > 1
