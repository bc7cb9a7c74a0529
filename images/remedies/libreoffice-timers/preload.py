"""Compile a preload library for an image and run the image's programs with it; gtk-timers does so too."""

from __future__ import annotations

import os
import struct
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from timer_sites import NotApplicableError

COMPILE_TIMEOUT_S = 60
CHECK_TIMEOUT_S = 60
TRIPLET = "x86_64-linux-gnu"


def find_compiler() -> str:
    """A C compiler of this machine that makes x86-64 code.

    Raises:
        NotApplicableError: there is none.
    """
    compiler = os.environ.get("CC", "cc")
    try:
        machine = subprocess.run(
            [compiler, "-dumpmachine"], capture_output=True, text=True, check=True, timeout=COMPILE_TIMEOUT_S
        ).stdout.strip()
    except (OSError, subprocess.CalledProcessError) as error:
        raise NotApplicableError(f"no C compiler: {error}") from error
    if not machine.startswith("x86_64"):
        raise NotApplicableError(f"the C compiler makes code for {machine}")
    return compiler


def compile_library(compiler: str, source: Path, header: tuple[str, str], target: Path) -> None:
    """Compile a preload library, linked against nothing, for whatever C library the image has.

    Args:
        header: Name and text of what `source` includes.
    """
    with tempfile.TemporaryDirectory() as build:
        (Path(build) / header[0]).write_text(header[1])
        subprocess.run(
            [
                compiler, "-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", "-fPIC", "-shared", "-nostdlib",
                "-fno-stack-protector", "-fno-builtin", "-fno-optimize-sibling-calls", "-U_FORTIFY_SOURCE",
                "-Wl,-z,now,-z,noseparate-code", "-Wl,--build-id=none", "-s", "-I", build,
                "-o", str(target), str(source),
            ],
            check=True,
            timeout=COMPILE_TIMEOUT_S,
        )  # fmt: skip
    target.chmod(0o644)


def run_preloaded(
    root: Path, library: Path, folders: Sequence[Path], argv: Sequence[str], env: Mapping[str, str]
) -> subprocess.CompletedProcess[str]:
    """Run a program of the image with the library, by the image's loader: no chroot, no privilege.

    Args:
        folders: Where it has libraries besides the usual places.
        argv: The program as a path here, and its arguments.
    """
    usual = [root / "usr/lib" / TRIPLET, root / "lib" / TRIPLET, root / "usr/lib"]
    return subprocess.run(
        [
            str(root / interpreter(Path(argv[0])).lstrip("/")),
            "--library-path", ":".join(str(path) for path in [*folders, *usual]),
            "--preload", str(library), *argv,
        ],
        env={"PATH": "/usr/bin:/bin", **env},
        capture_output=True,
        text=True,
        check=False,
        timeout=CHECK_TIMEOUT_S,
    )  # fmt: skip


def interpreter(program: Path) -> str:
    """The loader that an ELF program names (PT_INTERP)."""
    data = program.read_bytes()
    (table,) = struct.unpack_from("<Q", data, 32)
    entry_size, count = struct.unpack_from("<HH", data, 54)
    for index in range(count):
        kind, _, offset, _, _, size = struct.unpack_from("<IIQQQQ", data, table + index * entry_size)
        if kind == 3:
            return data[offset : offset + size].rstrip(b"\0").decode("ascii")
    raise RuntimeError(f"{program} names no loader")
