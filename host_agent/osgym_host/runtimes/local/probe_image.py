"""Small image made of this machine's own programs, which doctor and contract tests clone.

Its files belong to the image's ids when root makes it, else to the caller, which replicas see as
nobody: enough to run programs and to make folders in `/`.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from osgym_host.images.idmap import IdMap, current_idmap
from osgym_host.runtimes.local.protocol import SESSION

_FOLDERS = (
    "proc",
    "sys",
    "dev",
    "run",
    "tmp",
    "etc",
    "bin",
    "usr/bin",
    "usr/lib/osgym",
    "lib",
    "lib64",
    "root",
)
_IGNORED = (
    "__pycache__",
    "test",
    "tests",
    "site-packages",
    "dist-packages",
    "idlelib",
    "config-*",
    "tkinter",
)
"""Large parts of a Python library that a probe does not need."""


@dataclass(frozen=True, slots=True)
class ProbeManifest:
    """Ids of the image's files."""

    uid_base: int
    gid_base: int


@dataclass(frozen=True, slots=True)
class ProbeImage:
    """Image for `runtimes.base.RootfsImage`."""

    digest: str
    rootfs: Path
    manifest: ProbeManifest


def build_probe_image(
    rootfs: Path,
    session: str,
    *,
    programs: Sequence[Path] = (Path("/bin/sh"),),
    trees: Mapping[Path, str] | None = None,
    idmap: IdMap | None = None,
) -> ProbeImage:
    """Make a root file system at `rootfs` (absent, or an empty folder) that runs `session`.

    Args:
        session: Text of `/usr/lib/osgym/session`, its `#!` line included.
        programs: Programs of this machine to copy, with the libraries they load.
        trees: Folders of this machine to copy whole, and their places in the image.

    Raises:
        OSError: Something could not be copied.
        subprocess.SubprocessError: `ldd` failed.
    """
    idmap = idmap or current_idmap()
    for name in _FOLDERS:
        (rootfs / name).mkdir(parents=True, exist_ok=True)
    files = {str(program): program for program in programs}
    for program in programs:
        files |= {str(library): library for library in _libraries(program)}
    for source, target in (trees or {}).items():
        ignore = shutil.ignore_patterns(*_IGNORED)
        shutil.copytree(source, rootfs / target.lstrip("/"), symlinks=True, ignore=ignore, dirs_exist_ok=True)
    for name, file in files.items():
        target_path = rootfs / name.lstrip("/")
        target_path.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(file, target_path)
    (rootfs / "etc/passwd").write_text("root:x:0:0::/root:/bin/sh\nuser:x:1000:1000::/tmp:/bin/sh\n")
    target_path = rootfs / SESSION.lstrip("/")
    target_path.write_text(session)
    target_path.chmod(0o755)
    (rootfs / "scratch").mkdir()
    (rootfs / "scratch").chmod(0o1777)
    if os.geteuid() == 0:
        for path in [rootfs, *rootfs.rglob("*")]:
            os.chown(path, idmap.uid_base, idmap.gid_base, follow_symlinks=False)
    return ProbeImage("probe", rootfs, ProbeManifest(idmap.uid_base, idmap.gid_base))


def _libraries(program: Path) -> list[Path]:
    done = subprocess.run(["ldd", str(program)], capture_output=True, text=True, timeout=10, check=False)
    return [Path(found) for found in re.findall(r"(/\S+)(?: \(0x)", done.stdout)]
