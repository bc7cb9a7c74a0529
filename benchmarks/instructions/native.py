"""Machine instructions of the guest agent's native core, by callgrind."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

from benchmarks.common import ROOT

NATIVE = ROOT / "guest_agent" / "native"
SOURCES = ("frame.c", "png.c")
LIBRARIES = ("-lxcb", "-lxcb-damage", "-lxcb-xtest", "-lxcb-xfixes", "-lxcb-shm", "-lisal")
CFLAGS = ("-std=gnu11", "-O3", "-g")
"""Flags with which setup.py builds the core, with symbols."""
PACKAGES = ("gcc", "valgrind", "libisal-dev", "libc6")
"""Packages on which the counts depend besides our code."""
TIMEOUT_S = 300
COUNTED = re.compile(r"^fn=(?:\(\d+\) )?(count_\w+)$")


class Unavailable(RuntimeError):
    """A tool for counting is missing; the message names it."""


def tools() -> dict[str, str]:
    """Return the versions of the tools.

    Raises:
        Unavailable: A tool is missing.
    """
    if missing := [name for name in ("valgrind", "gcc", "dpkg-query") if not shutil.which(name)]:
        raise Unavailable(f"{', '.join(missing)} missing")
    if "avx2" not in Path("/proc/cpuinfo").read_text():
        raise Unavailable("the CPU has no AVX2, and ISA-L takes other code without")
    argv = ["dpkg-query", "-W", "-f", "${Package} ${Version}\n", *PACKAGES]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=30)
    found = dict(line.split(" ", 1) for line in done.stdout.splitlines())
    if missing := [name for name in PACKAGES if not found.get(name)]:
        raise Unavailable(f"package {', '.join(missing)} missing")
    return found


def counts(scratch: Path) -> dict[str, int]:
    """Return instructions of each counted function of hot.c, with everything that it calls.

    Raises:
        Unavailable: It cannot be built or counted here.
    """
    program, out = scratch / "hot", scratch / "callgrind.out"
    sources = [Path(__file__).with_name("hot.c"), *(NATIVE / name for name in SOURCES)]
    _run(["gcc", *CFLAGS, f"-I{NATIVE}", "-o", str(program), *map(str, sources), *LIBRARIES])
    flags = ["--tool=callgrind", f"--callgrind-out-file={out}", "--compress-strings=no", "--compress-pos=no"]
    _run(["valgrind", *flags, "--toggle-collect=count_*", str(program)])
    return inclusive(out.read_text())


def _run(argv: list[str]) -> None:
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=TIMEOUT_S)
    if done.returncode != 0:
        raise RuntimeError(f"{argv[0]} ended with {done.returncode}: {done.stderr[-800:]}")


def inclusive(text: str) -> dict[str, int]:
    """Return the cost of each `count_…` function with its callees, from a profile of callgrind. Pure."""
    found: dict[str, int] = {}
    name = ""
    for line in text.splitlines():
        if line.startswith("fn="):
            match = COUNTED.match(line)
            name = match[1] if match else ""
        elif name and re.match(r"[\d+*-]", line):  # its own lines, and after `calls=` what they called
            found[name] = found.get(name, 0) + int(line.split()[1])
    return {key.removeprefix("count_"): value for key, value in sorted(found.items())}
