"""GTK's timers: the table is checked against libraries, and the preload library brings forward these only."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType

import pytest

REMEDIES = Path(__file__).resolve().parents[2] / "images/remedies"
RETURN_KEY = "[gtk+] button_activate_timeout"

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="missing: a C compiler")


@pytest.fixture(scope="module")
def table() -> ModuleType:
    """The table, imported from the remedy's folder."""
    path = REMEDIES / "gtk-timers/timer_table.py"
    spec = importlib.util.spec_from_file_location("timer_table", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["timer_table"] = module
    spec.loader.exec_module(module)
    return module


def compile_library(folder: Path, soname: str, source: str, *flags: str) -> Path:
    """Compile a stand-in for a library."""
    path = folder / f"{soname}.c"
    path.write_text(source)
    library = folder / soname
    argv = ["cc", "-O1", "-shared", "-fPIC", f"-Wl,-soname,{soname}", "-o", library, path, *flags]
    subprocess.run(argv, check=True, timeout=60)
    return library


GLIB = """
#include <stdint.h>
static int64_t ready;
void g_source_set_name_by_id(unsigned id, const char *name) {}
void *g_main_context_find_source_by_id(void *context, unsigned id) { return id ? &ready : 0; }
int64_t g_source_get_ready_time(void *source) { return *(int64_t *)source; }
void g_source_set_ready_time(void *source, int64_t due_us) { *(int64_t *)source = due_us; }
int64_t g_get_monotonic_time(void) { return 0; }
"""

GTK = """
#include <stdint.h>
void g_source_set_name_by_id(unsigned, const char *);
void g_source_set_ready_time(void *, int64_t);
int64_t g_source_get_ready_time(void *);
void *g_main_context_find_source_by_id(void *, unsigned);
long after_naming(unsigned id, const char *name) {
  void *source = g_main_context_find_source_by_id(0, 1);
  g_source_set_ready_time(source, 250000);
  g_source_set_name_by_id(id, name);
  return g_source_get_ready_time(source);
}
"""

# An application that only loads GTK when it needs it, and for nobody else to see.
PROGRAM = """
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
int main(int count, char **arguments) {
  void *gtk = dlopen("libgtk-3.so.0", RTLD_NOW | RTLD_LOCAL);
  long (*named)(unsigned, const char *) = gtk ? dlsym(gtk, "after_naming") : NULL;
  if (!named) { fprintf(stderr, "%s", dlerror()); return 2; }
  for (int i = 2; i < count; i++) printf("%ld\\n", named(atoi(arguments[1]), arguments[i]));
}
"""


def names(table: ModuleType, without: Iterable[str] = ()) -> str:
    """C source of the names that a library holds."""
    kept = [timer.name for timer in table.NAMED_TIMERS if timer.name not in without]
    return "".join(f'const char *name{i} = "{name}";\n' for i, name in enumerate(["", *kept]))


def libraries(table: ModuleType, folder: Path, gtk: str) -> tuple[Path, Path]:
    """Stand-ins for GTK 3 and GLib."""
    glib = compile_library(folder, "libglib-2.0.so.0", GLIB)
    return compile_library(folder, "libgtk-3.so.0", gtk, str(glib), "-Wl,-rpath,$ORIGIN"), glib


def test_a_library_with_all_names_is_accepted(table: ModuleType, tmp_path: Path) -> None:
    """Names as they should be, given by a call of GLib."""
    gtk, glib = libraries(table, tmp_path, GTK + names(table))
    table.check_gtk3(table.SharedLibrary(gtk), table.SharedLibrary(glib))


def test_a_library_without_a_name_is_refused(table: ModuleType, tmp_path: Path) -> None:
    """The message says which timer it does not have."""
    gtk, glib = libraries(table, tmp_path, GTK + names(table, [RETURN_KEY]))
    with pytest.raises(table.NotApplicableError, match="button_activate_timeout"):
        table.check_gtk3(table.SharedLibrary(gtk), table.SharedLibrary(glib))


def test_a_library_that_names_nothing_is_refused(table: ModuleType, tmp_path: Path) -> None:
    """A call that cannot be answered in its place leaves the image without the remedy."""
    gtk, glib = libraries(table, tmp_path, names(table))
    with pytest.raises(table.NotApplicableError, match="does not call"):
        table.check_gtk3(table.SharedLibrary(gtk), table.SharedLibrary(glib))


WAIT = """
void timer{number}(void *data) {{ asm volatile("mov ${delay_ms}, %%edi; mov %0, %%rdx; "
  "call gdk_threads_add_timeout@PLT" :: "r"(data) : "rdi", "rsi", "rdx", "rax", "rcx", "memory"); }}
"""


@pytest.mark.parametrize(
    ("delays_ms", "known"),
    [
        ((250, 250, 300, 300, 500), True),
        ((250, 300, 300), False),
        ((250, 250), False),
        ((250, 250, 250, 300, 300), False),
        ((250, 250, 300, 300, 300), False),
    ],
)
def test_gtk_2_is_told_by_the_number_of_its_waits(
    table: ModuleType, tmp_path: Path, delays_ms: tuple[int, ...], known: bool
) -> None:
    """Its timers are asked for their type only where all that wait as long are known to have one."""
    gdk = compile_library(tmp_path, "libgdk-x11-2.0.so.0", "unsigned gdk_threads_add_timeout() { return 1; }")
    waits = "".join(WAIT.format(number=i, delay_ms=delay_ms) for i, delay_ms in enumerate(delays_ms))
    gtk = compile_library(tmp_path, "libgtk-x11-2.0.so.0", waits, str(gdk))
    assert table.unnamed_timers(table.SharedLibrary(gtk)) == (table.UNNAMED_TIMERS if known else ())
    assert table.unnamed_timers(table.SharedLibrary(gdk)) == ()


@pytest.fixture(scope="module")
def preload(table: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The preload library."""
    folder = tmp_path_factory.mktemp("preload")
    (folder / "timers.h").write_text(table.header(table.UNNAMED_TIMERS))
    source = (REMEDIES / "gtk-timers/gtk_timers.c").read_text()
    return compile_library(folder, "gtk_timers.so", source, "-I", str(folder), "-nostdlib", "-Wl,-z,now")


@pytest.mark.parametrize("mode", ["", "off"])
def test_only_listed_timers_are_brought_forward(
    table: ModuleType, preload: Path, tmp_path: Path, mode: str
) -> None:
    """A listed one is due after its short wait; others are due as ever, and all are when it is off."""
    libraries(table, tmp_path, GTK)
    source, program = tmp_path / "program.c", tmp_path / "program"
    source.write_text(PROGRAM)
    subprocess.run(["cc", "-o", program, source, "-ldl", "-Wl,-rpath,$ORIGIN"], check=True, timeout=60)
    env = {**os.environ, "LD_PRELOAD": str(preload), "OSGYM_GTK_TIMERS": mode}
    argv = [program, "1", RETURN_KEY, f"{RETURN_KEY}_2", "", "[gtk+] thaw_func"]
    done = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=60, check=True)
    wanted_us = [250_000] * 4 if mode == "off" else [1_000, 250_000, 250_000, 5_000]
    assert [int(line) for line in done.stdout.split()] == wanted_us
    gone = subprocess.run([program, "0", RETURN_KEY], env=env, capture_output=True, timeout=60, check=True)
    assert gone.stdout == b"250000\n"


# Stands in for GLib: what a timer is for is its wait.
TIMEOUTS = """
unsigned g_timeout_add(unsigned ms, int (*f)(void *), void *data) { return ms; }
unsigned g_timeout_add_full(int p, unsigned ms, int (*f)(void *), void *data, void (*forget)(void *)) {
  return ms; }
"""
TIMED = """
#include <stdio.h>
unsigned g_timeout_add(unsigned, int (*)(void *), void *);
unsigned g_timeout_add_full(int, unsigned, int (*)(void *), void *, void (*)(void *));
int main(void) { printf("%u %u %u", g_timeout_add(8000, 0, 0), g_timeout_add_full(0, 10000, 0, 0, 0),
                        g_timeout_add(9000, 0, 0)); }
"""


@pytest.mark.parametrize(
    ("program", "mode", "waits_ms"),
    [("gimp", "", "{n} {n} 9000"), ("gimp", "off", "8000 10000 9000"), ("other", "", "8000 10000 9000")],
)
def test_a_programs_own_timers_never_come(
    preload: Path, tmp_path: Path, program: str, mode: str, waits_ms: str
) -> None:
    """Those of that program and wait; the same waits of others are passed on."""
    glib = compile_library(tmp_path, "libglib-2.0.so.0", TIMEOUTS)
    source, made = tmp_path / "program.c", tmp_path / program
    source.write_text(TIMED)
    subprocess.run(["cc", "-o", made, source, glib, "-Wl,-rpath,$ORIGIN"], check=True, timeout=60)
    env = {**os.environ, "LD_PRELOAD": str(preload), "OSGYM_GTK_TIMERS": mode}
    done = subprocess.run([made], env=env, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == waits_ms.format(n=2_000_000_000)


@pytest.mark.parametrize("argv", [["true"], ["sh", "-c", "exit 0"], [sys.executable, "-c", "pass"]])
def test_programs_without_gtk_start_as_ever(preload: Path, argv: list[str]) -> None:
    """Nothing is missing, and nobody says anything."""
    env = {**os.environ, "LD_PRELOAD": str(preload)}
    done = subprocess.run(argv, env=env, capture_output=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
