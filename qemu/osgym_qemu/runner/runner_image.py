"""Image of runner containers: Debian's QEMU and a small Python, nothing else.

There is no registry: mmdebstrap makes a root file system from the machine's own package sources, and the
daemon imports it. What it was made from (packages, excludes, the entry, the host's QEMU) is its *recipe*;
an image whose recipe did not change is found again by its label.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import shlex
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from osgym_host.images.apt import apt_options, apt_sources
from osgym_host.images.errors import BakeError
from osgym_qemu.runner import container_spec as spec
from osgym_qemu.runner.daemon import DockerDaemon, DockerFailed, translated

REPOSITORY = "osgym-runner"
LABEL_RECIPE = "osgym.runner.recipe"
LABEL_QEMU = "osgym.runner.qemu"

SUITE = "bookworm"
COMPONENTS = ["main"]
PACKAGES = ("qemu-system-x86", "python3-minimal")
"""Without what they only recommend: no graphical interface, no firmware for other machines."""
EXCLUDES = (
    "/usr/share/doc/*",
    "/usr/share/man/*",
    "/usr/share/info/*",
    "/usr/share/locale/*",
    "/usr/share/zoneinfo/*",
)
VARIANT = "extract"
"""Packages are unpacked, not installed: no shell, no system around the two programs, half the size."""
REMOVED = (
    "/usr/share/perl",
    "/usr/lib/x86_64-linux-gnu/perl",
    "/usr/lib/x86_64-linux-gnu/gconv",
    "/var/log/*",
)
"""Files that the two programs do not need."""
_EPOCH = "1735689600"  # as the golden image's: the tar stream then depends on the packages alone
_BAKE_TIMEOUT_S = 1200.0

_ENTRY = Path(__file__).with_name("entry.py")


@dataclass(frozen=True, slots=True)
class RunnerImage:
    """Runner image of the daemon.

    Attributes:
        tag: `osgym-runner:<first digits of the content digest>`.
        qemu_version: Version from `qemu-system-x86_64 --version`, such as
            `7.2.22 (Debian 1:7.2+dfsg-7+deb12u18)`.
    """

    image_id: str
    tag: str
    recipe: str
    qemu_version: str


def recipe_digest(entry: bytes, host_qemu: str) -> str:
    """Return the digest of an image's recipe, in 64 hexadecimal digits. Pure."""
    value = hashlib.sha256()
    for part in (SUITE, VARIANT, *COMPONENTS, *PACKAGES, *EXCLUDES, *REMOVED, spec.ENTRY_PATH, host_qemu):
        value.update(part.encode() + b"\0")
    value.update(entry)
    return value.hexdigest()


def mmdebstrap_argv(target: Path, version_file: Path, entry: Path, *, root: bool) -> list[str]:
    """Return the command that writes the root file system as a tar file."""
    folder = shlex.quote(str(Path(spec.ENTRY_PATH).parent))
    version = f'chroot "$1" qemu-system-x86_64 --version > {shlex.quote(str(version_file))}'
    return [
        "mmdebstrap",
        f"--mode={'root' if root else 'unshare'}",
        f"--variant={VARIANT}",
        "--format=tar",
        f"--components={','.join(COMPONENTS)}",
        f"--include={','.join(PACKAGES)}",
        '--aptopt=Acquire::Languages "none"',
        '--aptopt=APT::Install-Recommends "false"',
        *[f"--aptopt={option}" for option in apt_options()],
        "--dpkgopt=force-unsafe-io",
        *[f"--dpkgopt=path-exclude={pattern}" for pattern in EXCLUDES],
        f'--extract-hook=mkdir -p "$1"{folder}',
        f"--extract-hook=upload {shlex.quote(str(entry))} {spec.ENTRY_PATH}",
        f'--extract-hook=chmod 0644 "$1"{spec.ENTRY_PATH}',
        f"--extract-hook={version}",
        "--extract-hook=rm -rf " + " ".join(f'"$1"{path}' for path in REMOVED),
        SUITE,
        str(target),
        *apt_sources(SUITE, COMPONENTS),
    ]


def parse_version(text: str) -> str:
    """Return the version in the first line of `qemu-system-x86_64 --version`.

    Raises:
        ValueError: The text is not QEMU's.
    """
    first = text.splitlines()[0] if text else ""
    _, found, version = first.partition(" version ")
    if not found or not version.strip():
        raise ValueError(f"not a version of QEMU: {first!r}")
    return version.strip()


def host_qemu_version() -> str:
    """Return the version of this host's QEMU, an empty string where there is none. Blocking."""
    try:
        done = subprocess.run(
            ["qemu-system-x86_64", "--version"], capture_output=True, text=True, timeout=30, check=True
        )
        return parse_version(done.stdout)
    except (OSError, subprocess.SubprocessError, ValueError):
        return ""


async def find_runner_image(daemon: DockerDaemon) -> RunnerImage | None:
    """Return the image of today's recipe, None when it was not built yet.

    Raises:
        DockerFailed: The daemon did not answer.
    """
    recipe = await asyncio.to_thread(_recipe)
    found = await daemon.run(daemon.api.images, REPOSITORY, filters={"label": [f"{LABEL_RECIPE}={recipe}"]})
    return _as_image(found[0]) if found else None


async def build_runner_image(
    daemon: DockerDaemon, scratch: Path, *, refresh: bool = False
) -> tuple[RunnerImage, bool]:
    """Return the image of today's recipe, and whether it was built now.

    Args:
        scratch: A folder for the tar file, on a real disk.

    Raises:
        BakeError: mmdebstrap failed; the error carries the end of its log.
        DockerFailed: The daemon refused it.
    """
    present = await find_runner_image(daemon)
    if present is not None and not refresh:
        return present, False
    built = await asyncio.to_thread(_build, daemon, scratch)
    for old in await daemon.run(daemon.api.images, REPOSITORY, filters={"label": [LABEL_RECIPE]}):
        if old["Id"] != built.image_id:
            await _forget_image(daemon, old["Id"])
    return built, True


async def _forget_image(daemon: DockerDaemon, image_id: str) -> None:
    """Remove a superseded image; one that a container still uses stays until the next build."""
    try:
        await daemon.run(daemon.api.remove_image, image_id, force=False)
    except DockerFailed as exc:
        if not (exc.conflict or exc.gone):
            raise


def _recipe() -> str:
    return recipe_digest(_ENTRY.read_bytes(), host_qemu_version())


def _as_image(found: dict[str, Any]) -> RunnerImage:
    labels = found.get("Labels") or {}
    tags = found.get("RepoTags") or [""]
    return RunnerImage(found["Id"], tags[0], labels.get(LABEL_RECIPE, ""), labels.get(LABEL_QEMU, ""))


def _build(daemon: DockerDaemon, scratch: Path) -> RunnerImage:
    """Bake the image and import it. Blocking."""
    if shutil.which("mmdebstrap") is None:
        raise BakeError("runner", "mmdebstrap is not installed", hint="install the package mmdebstrap")
    recipe = _recipe()
    scratch.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".runner-", dir=scratch) as name:
        folder = Path(name)
        tar, version_file = folder / "rootfs.tar", folder / "version"
        _bake(mmdebstrap_argv(tar, version_file, _ENTRY, root=os.geteuid() == 0), folder)
        qemu = parse_version(version_file.read_text())
        with tar.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        changes = [f'LABEL "{LABEL_RECIPE}"="{recipe}" "{LABEL_QEMU}"="{qemu}"']
        tag = digest[:16]
        translated(daemon.api.import_image, str(tar), repository=REPOSITORY, tag=tag, changes=changes)
        found = translated(daemon.api.images, f"{REPOSITORY}:{tag}")
    return _as_image(found[0])


def _bake(argv: list[str], folder: Path) -> None:
    env = {**os.environ, "LC_ALL": "C.UTF-8", "SOURCE_DATE_EPOCH": _EPOCH, "TMPDIR": str(folder)}
    try:
        done = subprocess.run(
            argv, env=env, stdin=subprocess.DEVNULL, capture_output=True, timeout=_BAKE_TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired as exc:
        raise BakeError("runner", f"mmdebstrap took longer than {_BAKE_TIMEOUT_S:.0f} s") from exc
    if done.returncode != 0:
        tail = done.stderr.decode(errors="replace")[-4000:]
        raise BakeError("runner", f"mmdebstrap ended with {done.returncode}", tail)
