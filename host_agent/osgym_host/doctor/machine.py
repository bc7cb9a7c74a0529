"""Checks of the machine: memory, disk, limits of the kernel, tools of the bake, and its images."""

from __future__ import annotations

import asyncio
import os
import re
import resource
import shutil
import sysconfig
from collections.abc import Mapping
from pathlib import Path

from osgym_host.doctor.result import DoctorContext, Finding, Status
from osgym_host.images.errors import ImageError
from osgym_host.images.store import ImageStore
from osgym_host.programs import run_program
from osgym_host.runtimes.swap import read_swap

_MIB = 1 << 20
_IDLE_REPLICA_MIB = 150
"""Memory of an idle desktop, all its processes (PSS), rounded up; benchmarks/replica_cost.py measures it."""
_AWAKE_REPLICA_MIB = 44
"""Memory that an idle desktop of the image full has for itself, beside others like it."""
_RESTING_REPLICA_MIB = 12
"""Memory of such a desktop at rest, with all that 1,500 of them cost; benchmarks/resting.py measures it."""
_SWAP_PER_RAM = 4
"""Size of compressed swap for each MiB of RAM. An idle desktop has 40 to 44 MiB there, which occupy 8: a host
that is full of them needs 3.6 times its RAM. What is not used costs nothing."""
_BUSY_REPLICA_MIB = 600
"""Memory of a desktop with an office application or a browser open."""
_IMAGE_MIB = 6 * 1024
"""Size of the full image and the room that its bake needs."""
# A desktop with browser, office suite, GIMP and VLC open at once had 8 inotify instances, 13 watches,
# 150 threads and 13 pipes. What is counted by user is shared where one stands behind all replicas.
_INOTIFY_PER_REPLICA = 8
_WATCHES_PER_REPLICA = 256
_THREADS_PER_REPLICA = 200
_PIPE_PAGES_PER_REPLICA = 512
_PTYS_PER_REPLICA = 4
_COMPILE_TIMEOUT_S = 10.0
_ISOLATION = "session isolation"
_HEADERS = {
    "Python.h": "python3-dev",
    "xcb/xcb.h": "libxcb1-dev",
    "xcb/damage.h": "libxcb-damage0-dev",
    "xcb/xtest.h": "libxcb-xtest0-dev",
    "xcb/xfixes.h": "libxcb-xfixes0-dev",
    "xcb/shm.h": "libxcb-shm0-dev",
    "isa-l/igzip_lib.h": "libisal-dev",
}


async def check_memory(context: DoctorContext) -> list[Finding]:
    """Check how many desktops fit."""
    text = Path("/proc/meminfo").read_text()  # noqa: ASYNC240 (a file of the kernel)
    fields = {line.split(":")[0]: int(line.split()[1]) // 1024 for line in text.splitlines() if ":" in line}
    total, free = fields["MemTotal"], fields["MemAvailable"]
    busy = max(0, (free - 1024) // _BUSY_REPLICA_MIB)
    found = (
        f"{free / 1024:.1f} of {total / 1024:.1f} GiB of memory are free: about {busy} desktops with a large "
        f"application open, {max(0, (free - 1024) // _IDLE_REPLICA_MIB)} idle ones."
    )
    facts = {"total_mib": total, "available_mib": free}
    if busy < 1:
        return [
            Finding("memory", Status.WARN, found, "At least 2 GiB of free memory are needed.", facts=facts)
        ]
    return [Finding("memory", Status.OK, found, facts=facts)]


async def check_swap(context: DoctorContext) -> list[Finding]:
    """Check for compressed swap, to which the memory of resting replicas goes."""
    swap = await asyncio.to_thread(read_swap)
    facts = {"total_mib": round(swap.total_mib), "compressed": swap.compressed}
    if swap.compressed:
        found = (
            f"{swap.total_mib / 1024:.0f} GiB of compressed swap take the memory of resting replicas: "
            f"an idle desktop occupies about {_RESTING_REPLICA_MIB} MiB instead of {_AWAKE_REPLICA_MIB}."
        )
        return [Finding("swap", Status.OK, found, facts=facts)]
    found = (
        "There is no compressed swap, so that replicas keep their memory while nobody uses them. With it, an "
        f"idle desktop occupies about {_RESTING_REPLICA_MIB} MiB instead of {_AWAKE_REPLICA_MIB}."
    )
    size_mib = await asyncio.to_thread(_total_ram_mib) * _SWAP_PER_RAM
    remedy = (
        f"As root: modprobe zram; echo {size_mib}M > /sys/block/zram0/disksize; mkswap /dev/zram0; "
        "swapon -p 100 /dev/zram0; sysctl vm.page-cluster=0. To keep it: install systemd-zram-generator."
    )
    return [Finding("swap", Status.WARN, found, remedy, facts=facts)]


def _total_ram_mib() -> int:
    first = Path("/proc/meminfo").read_text().splitlines()[0]
    return int(first.split()[1]) // 1024


async def check_disk(context: DoctorContext) -> list[Finding]:
    """Check the room for the image and overlays."""
    folder = existing_folder(context.data_dir)
    free = shutil.disk_usage(folder).free // _MIB
    facts = {"path": str(folder), "free_mib": free}
    found = f"{free / 1024:.0f} GiB are free on {folder}."
    if free < _IMAGE_MIB:
        remedy = f"Baking the full image needs {_IMAGE_MIB // 1024} GiB; set OSGYM_DATA_DIR to another disk."
        return [Finding("disk", Status.WARN, found, remedy, facts=facts)]
    return [Finding("disk", Status.OK, found, facts=facts)]


def replicas_are_users(uid: int, kernel: str) -> bool:
    """Return whether each replica is a user of its own to the kernel (root, id-mapped layers)."""
    found = re.match(r"(\d+)\.(\d+)", kernel)
    return uid == 0 and found is not None and (int(found[1]), int(found[2])) >= (5, 19)


async def check_limits(context: DoctorContext) -> list[Finding]:
    """Check limits that many replicas share; those of users where one user stands behind all of them."""
    count = context.replicas
    of_a_user = 1 if replicas_are_users(os.geteuid(), os.uname().release) else count
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    have_files = hard if hard != resource.RLIM_INFINITY else 1 << 30
    wanted = (
        ("fs.inotify.max_user_instances", of_a_user * _INOTIFY_PER_REPLICA),
        ("fs.inotify.max_user_watches", of_a_user * _WATCHES_PER_REPLICA),
        ("fs.pipe-user-pages-soft", of_a_user * _PIPE_PAGES_PER_REPLICA),
        ("kernel.pid_max", 2048 + count * _THREADS_PER_REPLICA),
        ("kernel.threads-max", 2048 + count * _THREADS_PER_REPLICA),
        ("kernel.pty.max", count * _PTYS_PER_REPLICA),
        ("user.max_net_namespaces", of_a_user + 16),
        ("user.max_user_namespaces", 8 * of_a_user + 16),
        ("fs.aio-max-nr", 65536),
    )
    results, fine = [], []
    for name, need in wanted:
        try:
            have = int((Path("/proc/sys") / name.replace(".", "/")).read_text())
        except OSError:
            continue
        if have >= need:
            fine.append(name)
            continue
        found = f"{have} is too small for {count} replicas, which need about {need}."
        remedy = f"As root: sysctl -w {name}={_round_up(need)} (and a file in /etc/sysctl.d to keep it)."
        facts = {"have": have, "need": need}
        results.append(Finding(name, Status.WARN, found, remedy, facts=facts))
    if have_files < 1024 + 16 * count:
        found = f"A process may open {have_files} files, too few for {count} replicas."
        results.append(
            Finding("open files", Status.WARN, found, "Raise `ulimit -Hn` (LimitNOFILE in a service).")
        )
    if not results:
        found = f"The kernel's limits are high enough for {count} replicas ({len(fine)} were checked)."
        results.append(Finding("limits", Status.OK, found, facts={"soft_nofile": soft}))
    return results


def _round_up(need: int) -> int:
    value = 1024
    while value < need:
        value *= 2
    return value


async def check_bake(context: DoctorContext) -> list[Finding]:
    """Check the tools of a golden image's bake."""
    have_images = any((context.data_dir / "images").glob("*/manifest.json"))
    lacking = Status.WARN if have_images else Status.MISSING
    results = []
    if shutil.which("mmdebstrap") is None:
        found = "mmdebstrap, which bakes images, is not installed."
        results.append(
            Finding("mmdebstrap", lacking, found, "Install mmdebstrap and debian-archive-keyring.")
        )
    else:
        results.append(Finding("mmdebstrap", Status.OK, "Images can be baked from Debian packages."))
    results.append(await _check_compiler(lacking))
    return results


async def _check_compiler(lacking: Status) -> Finding:
    name = "compiler"
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        found = "The guest agent's native core needs a C compiler, and none is installed."
        return Finding(name, lacking, found, f"Install gcc, libc6-dev, {', '.join(_HEADERS.values())}.")
    include = sysconfig.get_paths()["include"]
    absent = []
    for header, package in _HEADERS.items():
        source = f"#include <stddef.h>\n#include <{header}>\n".encode()
        argv = [compiler, "-E", "-x", "c", f"-I{include}", "-o", os.devnull, "-"]
        try:
            status, _ = await run_program(argv, timeout_s=_COMPILE_TIMEOUT_S, stdin=source)
        except TimeoutError:
            status = None
        if status != 0:
            absent.append(package)
    if absent:
        found = "Headers for the guest agent's native core are missing."
        return Finding(name, lacking, found, f"Install {', '.join(absent)}.", facts={"missing": absent})
    return Finding(
        name, Status.OK, "The compiler and headers for the guest agent's native core are installed."
    )


def existing_folder(folder: Path) -> Path:
    """Return the folder, or the nearest existing one above it."""
    folder = folder.absolute()
    while not folder.exists():
        folder = folder.parent
    return folder


async def check_session_isolation(context: DoctorContext) -> list[Finding]:
    """Return a finding about golden images whose programs can reach their guest agent."""
    return await asyncio.to_thread(_findings, context.data_dir)


def _findings(data_dir: Path) -> list[Finding]:
    store = ImageStore(data_dir)
    try:
        isolated = {name: store.resolve(name).manifest.session_isolated for name in store.tagged()}
    except ImageError as exc:
        return [Finding(_ISOLATION, Status.WARN, f"The images cannot be read: {exc}.")]
    return isolation_findings(_ISOLATION, "images", isolated, "Make them anew: osgym image build.")


def isolation_findings(name: str, noun: str, isolated: Mapping[str, bool], remedy: str) -> list[Finding]:
    """Return a finding about images of one kind; none where there are no images.

    Args:
        name: Name of the check.
        noun: Plural noun of the images.
        isolated: Name of each image, and whether its desktop's programs are kept from the guest agent.
        remedy: Remedy where one does not keep them.
    """
    facts = dict(isolated)
    open_ones = sorted(one for one, is_isolated in isolated.items() if not is_isolated)
    if not isolated:
        return []
    if not open_ones:
        found = f"Programs of all {noun}, root by sudo included, run below their guest agent."
        return [Finding(name, Status.OK, found, facts=facts)]
    names = ", ".join(open_ones)
    found = f"In these images, made before sessions were isolated, root can forge its score: {names}."
    return [Finding(name, Status.WARN, found, remedy, facts=facts)]
