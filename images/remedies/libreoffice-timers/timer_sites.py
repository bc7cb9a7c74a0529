"""Find the places in LibreOffice's libraries that hold its late repaint.

`SfxBindings` refreshes tool bars and status bar 300 ms after a change (`TIMEOUT_FIRST` in
`sfx2/source/control/bindings.cxx`), and puts it off again while the last input is younger than
200 ms (`MAX_INPUT_DELAY`). The compiler turned that into six `mov esi, 300` before calls of
`Timer::SetTimeout` and one `cmp rax, 199; ja` after a call of `Application::GetLastInputInterval`.
They are found by their bytes and by where the calls beside them go, so the offsets need not be known:
any build where exactly these seven are found can be patched, and no other is. Where they can be told as
surely, the 20 ms pause between two batches of ten updates and the form shell's 100 ms wait before it
looks at a new selection are shortened too, and frames and handles that blink without end stand still.

Writer and Impress have timers of the same kind in libraries of their own, which are loaded later and
call `Timer::SetTimeout` through their PLT. Those are known by the name that every timer carries.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from pathlib import Path

SET_TIMEOUT = "_ZN5Timer10SetTimeoutEm"
LAST_INPUT = "_ZN11Application20GetLastInputIntervalEv"
BINDINGS_PREFIX = "_ZN11SfxBindings"

BINDINGS_DELAY_MS = 300
BINDINGS_SITES = 6
INPUT_DELAY_MS = 200

INPUT_CHECK = b"\x48\x3d" + struct.pack("<I", INPUT_DELAY_MS - 1)
"""`cmp rax, 199`"""

BATCH_DELAY_MS = 20
BATCH_SITES = 2
BATCH_REACH_BYTES = 0x200
"""How far behind the input check the pause between two batches is set: in the same function."""

MARK_TIMER = b"svx::FmXFormShell m_aMarkTimer"
MARK_DELAY_MS = 100
MARK_TIMER_REACH_BYTES = 0x400
"""How far behind the timer's name its timeout is set: in the same constructor."""

BLINK_RANGE = "_ZN3sdr7overlay13OverlayObject27impCheckBlinkTimeValueRangeEm"
BLINK_LIMIT = b"\xb8" + struct.pack("<I", 10_000) + b"\xba"
"""`mov eax, 10000; mov edx, …`: how `BLINK_RANGE` begins, which bounds blink times of frames and handles."""

TASK_CONSTRUCTOR = "_ZN4TaskC2EPKc"
STORE_NAME = bytes.fromhex("48897710")
"""`mov [rdi + 16], rsi`: the constructor keeps the name at offset 16 of every task."""

# The functions of SfxBindings lie together; the one that checks the input has no exported name.
NEIGHBOURHOOD_BYTES = 0x10000

_EM_X86_64 = 62
_SHT_RELA, _SHT_NOTE, _SHT_DYNSYM = 4, 7, 11
_SHT_NOBITS = 8
_SHF_ALLOC, _SHF_EXECINSTR = 2, 4
_R_X86_64_JUMP_SLOT = 7
_R_X86_64_GLOB_DAT = 6
_NT_GNU_BUILD_ID = 3


class NotApplicableError(Exception):
    """The library is not one that this remedy understands; it is left alone."""


@dataclass(frozen=True, slots=True)
class Section:
    """One section: where it lies in the file and in memory."""

    kind: int
    flags: int
    address: int
    offset: int
    size: int
    link: int


@dataclass(frozen=True, slots=True)
class Symbol:
    """A defined dynamic symbol."""

    name: str
    address: int
    size: int


@dataclass(frozen=True, slots=True)
class CoreSites:
    """What is patched in the core library; all offsets are from its load address."""

    build_id: str
    delay_offsets: tuple[int, ...]
    input_check_offset: int
    batch_delay_offsets: tuple[int, ...]
    mark_delay_offset: int | None
    blink_limit_offset: int | None


@dataclass(frozen=True, slots=True)
class NamedTimer:
    """A timer whose waits of exactly `delay_ms` are shortened: its library and its name."""

    soname: str
    name: str
    delay_ms: int


NAMED_TIMERS = (
    # follows the cursor into another shell: paragraph, table, drawing
    NamedTimer("libswlo.so", "sw::SwView m_aTimer", 120),
    # shows the slide that was chosen in the list
    NamedTimer("libsdlo.so", "sd CurrentSlideManager maSwitchPageDelayTimer", 100),
    # draws a slide's preview after the slide has changed
    NamedTimer("libsdlo.so", "sd::QueueProcessor maTimer", 100),
    # shows the hint to a function that is typed, and what the function wizard computes
    NamedTimer("libsclo.so", "ScInputHandlerDelay timer", 500),
)


class SharedLibrary:
    """As much of an x86-64 ELF shared library as the search needs.

    Raises:
        NotApplicableError: no 64-bit little-endian ELF for x86-64.
    """

    def __init__(self, path: Path) -> None:
        self.data = path.read_bytes()
        self.path = path
        if self.data[:6] != b"\x7fELF\x02\x01" or struct.unpack_from("<H", self.data, 18)[0] != _EM_X86_64:
            raise NotApplicableError(f"{path.name} is not an x86-64 library")
        self.sections = list(self._read_sections())
        self._names, self.symbols = self._read_symbols()

    def _read_sections(self) -> Iterator[Section]:
        (table,) = struct.unpack_from("<Q", self.data, 40)
        entry_size, count = struct.unpack_from("<HH", self.data, 58)
        for index in range(count):
            _, kind, flags, address, offset, size, link = struct.unpack_from(
                "<IIQQQQI", self.data, table + index * entry_size
            )
            yield Section(kind, flags, address, offset, size, link)

    def _read_symbols(self) -> tuple[list[str], dict[str, Symbol]]:
        names: list[str] = []
        symbols: dict[str, Symbol] = {}
        for section in self.sections:
            if section.kind != _SHT_DYNSYM:
                continue
            strings = self.sections[section.link].offset
            for at in range(section.offset, section.offset + section.size, 24):
                name_at, _, _, section_index, address, size = struct.unpack_from("<IBBHQQ", self.data, at)
                end = self.data.index(b"\0", strings + name_at)
                name = self.data[strings + name_at : end].decode("ascii", "replace")
                names.append(name)
                if section_index and name:
                    symbols[name] = Symbol(name, address, size)
        return names, symbols

    @property
    def build_id(self) -> str:
        """The GNU build id as hex.

        Raises:
            NotApplicableError: the library carries none, so it could not be told from another.
        """
        for section in self.sections:
            if section.kind != _SHT_NOTE:
                continue
            name_size, size, kind = struct.unpack_from("<III", self.data, section.offset)
            if kind == _NT_GNU_BUILD_ID and name_size == 4:
                start = section.offset + 16
                return self.data[start : start + size].hex()
        raise NotApplicableError(f"{self.path.name} has no build id")

    def code(self) -> Iterator[tuple[int, bytes]]:
        """Every executable section as (address, bytes)."""
        for section in self.sections:
            if section.flags & _SHF_EXECINSTR and section.size:
                yield section.address, self.data[section.offset : section.offset + section.size]

    def read(self, symbol: Symbol) -> bytes:
        """The bytes of a function; empty when it lies in no executable section."""
        for base, code in self.code():
            if base <= symbol.address < base + len(code):
                return code[symbol.address - base : symbol.address - base + symbol.size]
        return b""

    def address_of(self, text: bytes) -> int | None:
        """The address of the only place where `text` stands in what is loaded; else None."""
        if self.data.count(text) != 1:
            return None
        offset = self.data.index(text)
        for section in self.sections:
            held = section.kind != _SHT_NOBITS and section.flags & _SHF_ALLOC
            if held and section.offset <= offset < section.offset + section.size:
                return section.address + offset - section.offset
        return None

    def entries_of(self, name: str) -> frozenset[int]:
        """Every address that a call of `name` may go to: the function itself and its PLT stubs."""
        found = set()
        if name in self.symbols:
            found.add(self.symbols[name].address)
        slots = set()
        for section in self.sections:
            if section.kind != _SHT_RELA:
                continue
            for at in range(section.offset, section.offset + section.size, 24):
                slot, info = struct.unpack_from("<QQ", self.data, at)
                if info & 0xFFFFFFFF not in (_R_X86_64_JUMP_SLOT, _R_X86_64_GLOB_DAT):
                    continue
                if self._names[info >> 32] == name:
                    slots.add(slot)
        if slots:
            found |= set(self._stubs(frozenset(slots)))
        return frozenset(found)

    def _stubs(self, slots: frozenset[int]) -> Iterator[int]:
        """PLT stubs that jump through one of `slots`: `jmp *slot(%rip)`, with or without `endbr64`/`bnd`."""
        for base, code in self.code():
            for match in re.finditer(rb"(\xf3\x0f\x1e\xfa)?\xf2?\xff\x25(....)", code, re.DOTALL):
                (distance,) = struct.unpack("<i", match.group(2))
                if base + match.end() + distance in slots:
                    yield base + match.start()


def load_delay(delay_ms: int) -> bytes:
    """`mov esi, delay_ms`"""
    return b"\xbe" + struct.pack("<I", delay_ms)


def _call_target(base: int, code: bytes, at: int) -> int:
    """The target of the `call rel32` whose opcode stands at `at`."""
    distance: int = struct.unpack_from("<i", code, at + 1)[0]
    return base + at + 5 + distance


# `lea r64, [rip + distance]`
_LEA = re.compile(rb"[\x48\x4c]\x8d[\x05\x0d\x15\x1d\x25\x2d\x35\x3d](....)", re.DOTALL)

# An optional `mov rdi, r64` between the argument and the call.
_MOVE_THIS = rb"(?:[\x48-\x4f]\x89[\xc0-\xff])?"


def timeout_calls(library: SharedLibrary, delay_ms: int) -> Iterator[int]:
    """The address of each `mov esi, delay_ms` right before a call of `Timer::SetTimeout`."""
    targets = library.entries_of(SET_TIMEOUT)
    pattern = re.compile(rb"\xbe" + re.escape(struct.pack("<I", delay_ms)) + _MOVE_THIS + rb"\xe8", re.DOTALL)
    for base, code in library.code():
        for match in pattern.finditer(code):
            call = match.end() - 1
            if call + 5 <= len(code) and _call_target(base, code, call) in targets:
                yield base + match.start()


def _input_checks(library: SharedLibrary) -> Iterator[int]:
    """Each `cmp rax, 199; ja` that follows a call of `GetLastInputInterval` within 16 bytes."""
    targets = library.entries_of(LAST_INPUT)
    pattern = re.compile(
        rb"\x48\x3d" + re.escape(struct.pack("<I", INPUT_DELAY_MS - 1)) + rb"\x77", re.DOTALL
    )
    for base, code in library.code():
        for match in pattern.finditer(code):
            before = range(max(match.start() - 16, 0), match.start() - 4)
            if any(code[at] == 0xE8 and _call_target(base, code, at) in targets for at in before):
                yield base + match.start()


def find_core_sites(library: SharedLibrary) -> CoreSites:
    """Find the seven sites in LibreOffice's core library.

    Raises:
        NotApplicableError: not exactly six delays and one check were found; the message says how many.
    """
    functions = [s for s in library.symbols.values() if s.name.startswith(BINDINGS_PREFIX) and s.size]
    if not functions:
        raise NotApplicableError(f"{library.path.name} has no SfxBindings")
    delays = tuple(
        site
        for site in timeout_calls(library, BINDINGS_DELAY_MS)
        if any(f.address <= site < f.address + f.size for f in functions)
    )
    low = min(f.address for f in functions) - NEIGHBOURHOOD_BYTES
    high = max(f.address + f.size for f in functions) + NEIGHBOURHOOD_BYTES
    checks = [site for site in _input_checks(library) if low <= site < high]
    if len(delays) != BINDINGS_SITES or len(checks) != 1:
        raise NotApplicableError(
            f"{library.path.name}: found {len(delays)} delays and {len(checks)} input checks, "
            f"not {BINDINGS_SITES} and 1"
        )
    return CoreSites(
        build_id=library.build_id,
        delay_offsets=delays,
        input_check_offset=checks[0],
        batch_delay_offsets=find_batch_delays(library, checks[0]),
        mark_delay_offset=find_mark_delay(library),
        blink_limit_offset=find_blink_limit(library),
    )


def find_batch_delays(library: SharedLibrary, check: int) -> tuple[int, ...]:
    """The two `mov esi, 20` of the pause between batches of ten updates; none unless exactly two.

    They are set in the function that checks the input, before anything else is called.
    """
    targets = library.entries_of(SET_TIMEOUT)
    entries = {symbol.address for symbol in library.symbols.values()}
    found = []
    for base, code in library.code():
        if not base <= check < base + len(code):
            continue
        reach = code[check - base : check - base + BATCH_REACH_BYTES]
        for match in re.finditer(re.escape(load_delay(BATCH_DELAY_MS)), reach, re.DOTALL):
            at = check - base + match.end()
            if _next_call(base, code, at, targets | entries) in targets:
                found.append(check + match.start())
    return tuple(found) if len(found) == BATCH_SITES else ()


def find_mark_delay(library: SharedLibrary) -> int | None:
    """The `mov esi, 100` of the timer that waits before the selection is looked at; None: not found.

    It is set in the constructor that names it, with a few stores of other members between `mov` and
    call; exactly one call of `SetTimeout` may follow that `mov`, and no other call may be between.
    """
    name = library.address_of(b"\0" + MARK_TIMER + b"\0")
    if name is None:
        return None
    targets = library.entries_of(SET_TIMEOUT)
    entries = {symbol.address for symbol in library.symbols.values()}
    mov = re.escape(load_delay(MARK_DELAY_MS))
    found = []
    for base, code in library.code():
        for reference in _LEA.finditer(code):
            if base + reference.end() + struct.unpack("<i", reference.group(1))[0] != name + 1:
                continue
            reach = code[reference.end() : reference.end() + MARK_TIMER_REACH_BYTES]
            for match in re.finditer(mov, reach, re.DOTALL):
                at = reference.end() + match.end()
                if _next_call(base, code, at, targets | entries) in targets:
                    found.append(base + reference.end() + match.start())
    return found[0] if len(found) == 1 else None


def find_blink_limit(library: SharedLibrary) -> int | None:
    """Where the function begins that bounds blink times; None: it is not exported, or begins differently."""
    function = library.symbols.get(BLINK_RANGE)
    if function is None or not library.read(function).startswith(BLINK_LIMIT):
        return None
    return function.address


def _next_call(base: int, code: bytes, at: int, functions: AbstractSet[int]) -> int | None:
    """The target of the first call of a known function within 256 bytes of `at`."""
    for call in range(at, min(at + 256, len(code) - 5)):
        if code[call] == 0xE8 and _call_target(base, code, call) in functions:
            return _call_target(base, code, call)
    return None


def find_named_timers(core: SharedLibrary, program: Path) -> tuple[NamedTimer, ...]:
    """The timers of `NAMED_TIMERS` that this LibreOffice has, and that can be told by their names.

    Args:
        core: the core library, whose tasks must keep their name where the preload library looks for it.
        program: the folder of LibreOffice's libraries.
    """
    constructor = core.symbols.get(TASK_CONSTRUCTOR)
    if constructor is None or STORE_NAME not in core.read(constructor):
        return ()
    found = []
    for timer in NAMED_TIMERS:
        path = program / timer.soname
        if not path.is_file():
            continue
        library = SharedLibrary(path)
        if SET_TIMEOUT not in library.symbols and library.entries_of(SET_TIMEOUT):
            named = library.data.count(b"\0" + timer.name.encode("ascii") + b"\0") == 1
            found += [timer] if named else []
    return tuple(found)
