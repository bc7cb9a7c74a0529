"""Packing of archives: the host agent of this tree with its dependencies, and an image of the local store."""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from osgym_infra.errors import OsgymInfraError

DISTRIBUTIONS = ("protocol", "sdk", "host_agent", "qemu", "cli", "osworld")
"""What a host needs, by folder."""
EXTRAS = {"host_agent": "[cloudwatch,gcp]", "qemu": "[docker]"}
"""Extras that hosts need: clients of the metrics that a fleet is scaled by, and of Docker."""
CONSTRAINTS = "constraints.txt"
PRODUCTS = ("build", "*.egg-info", "__pycache__", "*.pyc", "*.so", "osgym-identity")
"""What a build leaves in a distribution's folder."""
SETUPTOOLS = 77
"""Oldest setuptools that builds our wheels."""
BUILD_S = 900
PACK_S = 3600

SAME_WHEELS = {
    "SOURCE_DATE_EPOCH": "315619200", "CFLAGS": "-g0", "LDFLAGS": "-Wl,--build-id=none", "OSGYM_RELEASE": "1",
}  # fmt: skip
"""Environment in which the same source makes the same wheels: a date that zip can hold, no local paths."""
SAME_TAR = ("--sort=name",)
NOBODYS_TAR = ("--mtime=@0", "--owner=0", "--group=0", "--numeric-owner", "--mode=u=rwX,go=rX")
EXACT_TAR = (
    "--numeric-owner", "--xattrs", "--xattrs-include=*", "--format=posix",
    # Without these two it would hold when each file was last read, and the number of tar's process.
    "--pax-option=exthdr.name=%d/PaxHeaders/%f,delete=atime,delete=ctime",
)  # fmt: skip


class PackFailed(OsgymInfraError):
    """An archive could not be packed; the message ends with the tool's own."""


@dataclass(frozen=True, slots=True)
class PackedArchive:
    """Finished archive.

    Attributes:
        digest: Digest of the image in it; empty for an agent.
    """

    path: Path
    sha256: str
    digest: str = ""

    def named_by_content(self, name: str) -> PackedArchive:
        """Rename the archive by its digest, so that no two contents share a name."""
        path = self.path.replace(self.path.with_name(f"{name}-{self.sha256[:16]}.tar"))
        return PackedArchive(path, self.sha256, self.digest)


def agent_definition(root: Path) -> str:
    """Return the digest of all sources of the agent's archive, except what an index answers."""
    total = hashlib.sha256(f"{sys.version_info[:2]} {SAME_WHEELS} {EXTRAS}\n".encode())
    paths = [root / CONSTRAINTS] if (root / CONSTRAINTS).exists() else []
    for part in DISTRIBUTIONS:
        paths += _sources(root / part)
    for path in paths:
        total.update(f"{path.relative_to(root)} {sha256_of(path)}\n".encode())
    return total.hexdigest()


def _sources(folder: Path) -> list[Path]:
    """Return the files that a distribution is made from, also behind links, without what a build leaves."""
    products = shutil.ignore_patterns(*PRODUCTS)
    found = []
    for name, folders, files in os.walk(folder, followlinks=True):
        folders[:] = set(folders) - products(name, folders)
        found += [Path(name) / file for file in set(files) - products(name, files)]
    return sorted(found)


def build_wheels(root: Path, parts: Sequence[str], target: Path, *, dependencies: bool = False) -> None:
    """Build the wheels of this tree's distributions; the same source gives the same bytes.

    Args:
        dependencies: With the wheels of all that they depend on, from an index.

    Raises:
        PackFailed: A wheel could not be built or fetched.
    """
    with tempfile.TemporaryDirectory(prefix="osgym-pack-") as name:
        source = Path(name)
        for part in parts:
            for path in _sources(root / part):
                copy = source / path.relative_to(root)
                copy.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(path, copy)
                copy.chmod(0o755 if os.access(path, os.X_OK) else 0o644)
        argv = [sys.executable, "-m", "pip", "wheel", "-q", "--disable-pip-version-check"]
        if (root / CONSTRAINTS).exists():
            argv += ["-c", str(root / CONSTRAINTS)]
        argv += [] if dependencies else ["--no-deps", *_no_isolation()]
        extras = EXTRAS if dependencies else {}
        folders = [f"{source / part}{extras.get(part, '')}" for part in parts]
        _run([*argv, "-w", str(target), *folders], BUILD_S)


def _no_isolation() -> list[str]:
    """Return the option to build with the installed setuptools, asking no index, if it can build ours."""
    try:
        version = importlib.metadata.version("setuptools")
    except importlib.metadata.PackageNotFoundError:
        return []
    return ["--no-build-isolation"] if int(version.split(".")[0]) >= SETUPTOOLS else []


def pack_agent(root: Path, target: Path) -> PackedArchive:
    """Pack the host agent as wheels in a tar, from which hosts install without an index.

    Raises:
        PackFailed: A wheel could not be built or fetched.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="osgym-pack-") as name:
        build_wheels(root, DISTRIBUTIONS, Path(name), dependencies=True)
        _tar(target, [*NOBODYS_TAR, "-C", name, "."])
    return PackedArchive(target, sha256_of(target))


def pack_image(
    data_dir: Path, name: str, target: Path, *, machines: bool = False, emulated: bool = False
) -> PackedArchive:
    """Pack an image of the store in the bootstrap's form: folders below the data directory, ids unchanged.

    Args:
        data_dir: The store, as `osgym image build` fills it.
        machines: With its bootable disk and its snapshots, for `runtime: qemu`.
        emulated: Also with those that were frozen without KVM, which hosts with KVM would emulate, too.

    Raises:
        PackFailed: There is no such image, or no disk or snapshot of it, or one that needs `emulated`.
    """
    digest = _tagged(data_dir, "images", name)
    members = [f"images/{digest}", f"images/tags/{name}"]
    if machines:
        members += [f"disks/{_tagged(data_dir, 'disks', name)}", f"disks/tags/{name}"]
        snapshots = sorted((data_dir / "snapshots" / "tags").glob(f"{name}@*"))
        if not snapshots:
            raise PackFailed(f"there is no snapshot of {name} in {data_dir}: osgym image snapshot {name}")
        slow = [tag.name for tag in snapshots if _accel(data_dir, tag.name) == "tcg"]
        if slow and not emulated:
            raise PackFailed(
                f"{', '.join(slow)} was frozen without KVM, and would be emulated on hosts with KVM too: "
                f"make it where `osgym doctor` says that KVM works (osgym image snapshot {name} --refresh), "
                "or pack it with --emulated for hosts without"
            )
        for tag in snapshots:
            members += [f"snapshots/{_tagged(data_dir, 'snapshots', tag.name)}", f"snapshots/tags/{tag.name}"]
    target.parent.mkdir(parents=True, exist_ok=True)
    # Most of a frozen machine's RAM file is holes. With them no two archives are quite the same: tar puts its
    # process number into the names of such files.
    sparse = ["--sparse"] if machines else []
    _tar(target, [*EXACT_TAR, *sparse, "-C", str(data_dir), *dict.fromkeys(members)])
    return PackedArchive(target, sha256_of(target), digest)


def _accel(data_dir: Path, reference: str) -> str:
    """Return the accelerator under which a snapshot was frozen; empty: unknown."""
    manifest = data_dir / "snapshots" / _tagged(data_dir, "snapshots", reference) / "manifest.json"
    return str(json.loads(manifest.read_text())["shape"].get("accel", "")) if manifest.is_file() else ""


def config_lines(agent: PackedArchive, image: PackedArchive, name: str) -> str:
    """Return the lines of a stack's configuration that name both archives; `file://` means this machine."""
    values = {
        "agent_uri": agent.path.resolve().as_uri(),
        "agent_sha256": agent.sha256,
        "image_name": name,
        "image_uri": image.path.resolve().as_uri(),
        "image_sha256": image.sha256,
        "image_digest": image.digest,
    }
    return "".join(f"osgym:{key}: {json.dumps(value)}\n" for key, value in values.items())


def sha256_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _tagged(data_dir: Path, kind: str, name: str) -> str:
    try:
        digest = (data_dir / kind / "tags" / name).read_text().strip().removeprefix("sha256:")
    except OSError as error:
        raise PackFailed(
            f"there is no {name} among the {kind} in {data_dir}: run osgym image build"
        ) from error
    if not (data_dir / kind / digest / "manifest.json").is_file():
        raise PackFailed(f"{kind}/{digest[:12]} in {data_dir} is incomplete")
    return digest


def _tar(target: Path, arguments: list[str]) -> None:
    unfinished = target.with_name(f".{target.name}.part")
    try:
        # It may hold a frozen machine's memory and its secret.
        unfinished.unlink(missing_ok=True)
        unfinished.touch(mode=0o600)
        with unfinished.open("wb") as file:
            # By the open file, not by its name: a tar that outlives us for a moment leaves nothing behind.
            _run(["tar", "-cf", "-", *SAME_TAR, *arguments], PACK_S, file)
        unfinished.replace(target)
    finally:
        unfinished.unlink(missing_ok=True)


def _run(argv: list[str], timeout_s: float, output: IO[bytes] | None = None) -> None:
    try:
        done = subprocess.run(
            argv, env={**os.environ, **SAME_WHEELS}, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE,
            stdout=output or subprocess.PIPE, text=True, timeout=timeout_s, check=False, umask=0o022,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        raise PackFailed(f"{argv[0]}: {error}") from error
    if done.returncode != 0:
        said = "\n".join((done.stderr or done.stdout or "").splitlines()[-20:])
        raise PackFailed(f"{' '.join(argv[:4])} … ended with {done.returncode}:\n{said}")
