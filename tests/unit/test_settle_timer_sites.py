"""The search for LibreOffice's timers finds exactly the sites it should, and refuses all else."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

REMEDY = Path(__file__).resolve().parents[2] / "images/remedies/libreoffice-timers"

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="missing: a C compiler")


@pytest.fixture(scope="module")
def sites() -> ModuleType:
    """The search, imported from the remedy's folder."""
    spec = importlib.util.spec_from_file_location("timer_sites", REMEDY / "timer_sites.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["timer_sites"] = module
    spec.loader.exec_module(module)
    return module


def compile_library(folder: Path, source: str, *flags: str) -> Path:
    """Compile assembly-exact stand-ins for the functions whose names the search looks for."""
    path, library = folder / "lib.c", folder / "lib.so"
    path.write_text(source)
    subprocess.run(
        ["cc", "-O2", "-shared", "-fPIC", "-Wl,--build-id=sha1", *flags, "-o", library, path], check=True
    )
    return library


CALLEES = """
__attribute__((noinline)) void _ZN5Timer10SetTimeoutEm(void *t, unsigned long ms)
{ *(volatile long *)t = ms; }
__attribute__((noinline)) void other(void *t, unsigned long ms) { *(volatile long *)t = ms + 1; }
__attribute__((noinline)) unsigned long _ZN11Application20GetLastInputIntervalEv(void)
{ static volatile long x; return x; }
"""

SETTER = """
void {name}(void *t) {{ asm volatile("mov ${delay}, %%esi; {move} call {callee}"
  :: "D"(t) : "rsi", "rax", "rcx", "rdx", "r8", "r9", "r10", "r11", "memory"); }}
"""

CHECK = """
long next_job(void) { long r; asm volatile("call _ZN11Application20GetLastInputIntervalEv; test %%rbx, %%rbx;"
  "cmp $199, %%rax; ja 1f; xor %%eax, %%eax; 1:"
  : "=a"(r) :: "rcx", "rdx", "rsi", "rdi", "memory"); return r; }
"""


def setter(name: str, delay_ms: int = 300, callee: str = "_ZN5Timer10SetTimeoutEm", move: str = "") -> str:
    """C source of a function that sets a timer the way the compiler writes it."""
    return SETTER.format(name=name, delay=delay_ms, callee=callee, move=move)


def bindings(count: int, *, last_delay_ms: int = 300) -> str:
    """`count` functions of SfxBindings that set the timer; the last one with its own delay."""
    moves = ["", "mov %%rdi, %%rdi;"]
    return "".join(
        setter(f"_ZN11SfxBindings{i}Ev", last_delay_ms if i == count - 1 else 300, move=moves[i % 2])
        for i in range(count)
    )


@pytest.mark.parametrize("flags", [("-Wl,-Bsymbolic",), ()], ids=["direct calls", "calls through the PLT"])
def test_finds_six_delays_and_one_check(sites: ModuleType, tmp_path: Path, flags: tuple[str, ...]) -> None:
    """Six delays and one check are found at the bytes that the patch expects."""
    library = sites.SharedLibrary(compile_library(tmp_path, CALLEES + bindings(6) + CHECK, *flags))
    found = sites.find_core_sites(library)
    assert len(found.delay_offsets) == 6
    assert len(found.build_id) == 40
    code = dict(library.code())
    for offset in found.delay_offsets:
        assert read(code, offset, 5) == bytes.fromhex("be2c010000")
    assert read(code, found.input_check_offset, 7)[:2] == bytes.fromhex("483d")


def read(code: dict[int, bytes], address: int, count: int) -> bytes:
    """Bytes at a virtual address."""
    for base, data in code.items():
        if base <= address < base + len(data):
            return data[address - base : address - base + count]
    raise AssertionError(hex(address))


@pytest.mark.parametrize(
    "source",
    [
        bindings(5) + CHECK,
        bindings(7) + CHECK,
        bindings(6, last_delay_ms=301) + CHECK,
        bindings(6),
        bindings(6) + CHECK + CHECK.replace("next_job", "second_job"),
        bindings(5) + setter("_ZN11SfxBindings6otherEv", callee="other") + CHECK,
        bindings(5) + setter("somebody_else") + CHECK,
        CHECK,
    ],
    ids=[
        "five",
        "seven",
        "another delay",
        "no check",
        "two checks",
        "another callee",
        "outside",
        "no bindings",
    ],
)
def test_refuses_what_it_does_not_know(sites: ModuleType, tmp_path: Path, source: str) -> None:
    """Anything but exactly six and one is refused, so no other build is ever patched."""
    library = sites.SharedLibrary(compile_library(tmp_path, CALLEES + source, "-Wl,-Bsymbolic"))
    with pytest.raises(sites.NotApplicableError):
        sites.find_core_sites(library)


TASK = """
__attribute__((naked)) void _ZN4TaskC2EPKc(void *task, const char *name)
{ asm volatile("mov %rsi, 16(%rdi); ret"); }
"""
OTHER_TASK = TASK.replace("16(%rdi)", "24(%rdi)")

VIEW = """
void _ZN5Timer10SetTimeoutEm(void *, unsigned long);
const char *name(void) { return "?" "NAME"; }
void view(void *timer) { _ZN5Timer10SetTimeoutEm(timer, 120); }
"""


def program(folder: Path, view: str) -> Path:
    """A folder with Writer's library made from `view`; Impress is not installed."""
    made = compile_library(folder, view, "-Wl,-z,lazy", "-fplt", "-fno-inline")
    return made.rename(folder / "libswlo.so").parent


def test_named_timers_are_found_in_their_library(sites: ModuleType, tmp_path: Path) -> None:
    """Writer's timer is found by its name; what is not installed is left out."""
    core = sites.SharedLibrary(compile_library(tmp_path, TASK))
    view = VIEW.replace('"?" "NAME"', '"other\\0sw::SwView m_aTimer"')
    found = sites.find_named_timers(core, program(tmp_path, view))
    assert [timer.name for timer in found] == ["sw::SwView m_aTimer"]


def test_named_timers_need_their_name_where_it_is_looked_for(sites: ModuleType, tmp_path: Path) -> None:
    """A core whose tasks keep their name elsewhere, or a library without the name: nothing is shortened."""
    folder = program(tmp_path, VIEW.replace('"?" "NAME"', '"other\\0sw::SwView m_aTimer"'))
    other = sites.SharedLibrary(compile_library(tmp_path, OTHER_TASK))
    assert sites.find_named_timers(other, folder) == ()
    core = sites.SharedLibrary(compile_library(tmp_path, TASK))
    assert sites.find_named_timers(core, program(tmp_path, VIEW)) == ()


MARK = """
void _ZN5TimerC1EPKc(void *timer, const char *name) {{ *(const char **)timer = name; }}
void form_shell(long *shell, void *timer) {{
  _ZN5TimerC1EPKc(timer, &"?\\0svx::FmXFormShell m_aMarkTimer"[2]);
  asm volatile("mov $100, %%esi; movq $0, 8(%%rbx); {between} movq $0, 16(%%rbx); call {callee}"
    :: "b"(shell), "D"(timer) : "rsi", "rax", "rcx", "rdx", "r8", "r9", "r10", "r11", "memory"); }}
"""


def test_the_mark_timer_is_found_behind_its_name(sites: ModuleType, tmp_path: Path) -> None:
    """Its delay is found although other members are set before the call."""
    source = CALLEES + MARK.format(between="", callee="_ZN5Timer10SetTimeoutEm")
    library = sites.SharedLibrary(compile_library(tmp_path, source, "-Wl,-Bsymbolic"))
    offset = sites.find_mark_delay(library)
    assert offset is not None
    assert read(dict(library.code()), offset, 5) == bytes.fromhex("be64000000")


@pytest.mark.parametrize(
    ("between", "callee"),
    [("call other;", "_ZN5Timer10SetTimeoutEm"), ("", "other")],
    ids=["another call between", "another callee"],
)
def test_another_delay_is_not_taken_for_the_mark_timers(
    sites: ModuleType, tmp_path: Path, between: str, callee: str
) -> None:
    """When the value may be meant for another call the place is left alone."""
    source = CALLEES + MARK.format(between=between, callee=callee)
    library = sites.SharedLibrary(compile_library(tmp_path, source, "-Wl,-Bsymbolic"))
    assert sites.find_mark_delay(library) is None


BATCHES = """
void batches(void *timer) {{ asm volatile(
  "call _ZN11Application20GetLastInputIntervalEv; cmp $199, %%rax; ja 1f;"
  "mov $20, %%esi; add $0, %%rdi; {between} call _ZN5Timer10SetTimeoutEm;"
  "1: mov $20, %%esi; mov $10, %%r8d; call _ZN5Timer10SetTimeoutEm"
  :: "D"(timer) : "rsi", "rax", "rcx", "rdx", "r8", "r9", "r10", "r11", "memory"); }}
"""


@pytest.mark.parametrize(("between", "count"), [("", 2), ("call other;", 0)], ids=["two", "one is not sure"])
def test_batch_pauses_are_found_behind_the_check(
    sites: ModuleType, tmp_path: Path, between: str, count: int
) -> None:
    """Both pauses in the function that checks the input, or none."""
    source = CALLEES + bindings(6) + BATCHES.format(between=between)
    found = sites.find_core_sites(sites.SharedLibrary(compile_library(tmp_path, source, "-Wl,-Bsymbolic")))
    assert len(found.batch_delay_offsets) == count


BLINK_RANGE = "_ZN3sdr7overlay13OverlayObject27impCheckBlinkTimeValueRangeEm"


@pytest.mark.parametrize(
    ("limit", "found"), [("10000", True), ("9999", False)], ids=["its bytes", "other bytes"]
)
def test_the_bound_of_blink_times_is_known_by_name_and_bytes(
    sites: ModuleType, tmp_path: Path, limit: str, found: bool
) -> None:
    """Its offset is the function's; one that begins differently is left alone."""
    source = rf"""
        __asm__(".globl {BLINK_RANGE}\n.type {BLINK_RANGE}, @function\n{BLINK_RANGE}:\n"
        "mov ${limit}, %eax\nmov $25, %edx\nret\n.size {BLINK_RANGE}, . - {BLINK_RANGE}\n");
    """
    library = sites.SharedLibrary(compile_library(tmp_path, source))
    assert (sites.find_blink_limit(library) == library.symbols[BLINK_RANGE].address) == found


def test_not_a_library(sites: ModuleType, tmp_path: Path) -> None:
    """A file that is no x86-64 ELF is refused with its name."""
    path = tmp_path / "text.so"
    path.write_text("nothing")
    with pytest.raises(sites.NotApplicableError, match=r"text\.so"):
        sites.SharedLibrary(path)
