"""Packs what hosts fetch: the host agent of this tree with all it needs, and an image of the store here."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from osgym_infra.errors import OsgymInfraError

DISTRIBUTIONS = ("sdk", "guest_agent", "host_agent")
CONSTRAINTS = "constraints.txt"
PRODUCTS = ("build", "*.egg-info", "__pycache__", "*.pyc", "*.so", "osgym-identity")
"""What a build leaves in a distribution's folder."""
BUILD_S = 900
PACK_S = 3600

SAME_WHEELS = {"SOURCE_DATE_EPOCH": "315619200", "CFLAGS": "-g0", "LDFLAGS": "-Wl,--build-id=none"}
"""So that the same source makes the same wheels: a date that zip can hold, and no paths of this machine."""
SAME_TAR = ("--sort=name",)
NOBODYS_TAR = ("--mtime=@0", "--owner=0", "--group=0", "--numeric-owner", "--mode=u=rwX,go=rX")
EXACT_TAR = (
    "--numeric-owner", "--xattrs", "--xattrs-include=*", "--format=posix",
    # Without these two it would hold when each file was last read, and the number of tar's process.
    "--pax-option=exthdr.name=%d/PaxHeaders/%f,delete=atime,delete=ctime",
)  # fmt: skip


class PackFailed(OsgymInfraError):
    """Something could not be packed; the message ends with what the tool said."""


@dataclass(frozen=True, slots=True)
class Packed:
    """A finished archive.

    Attributes:
        digest: of the image in it; empty for an agent.
    """

    path: Path
    sha256: str
    digest: str = ""

    def named_by_content(self, name: str) -> Packed:
        """The same archive under a name that no other content has."""
        path = self.path.replace(self.path.with_name(f"{name}-{self.sha256[:16]}.tar"))
        return Packed(path, self.sha256, self.digest)


def agent_definition(root: Path) -> str:
    """Digest of everything that the agent's archive is made from, except what an index answers.

    Args:
        root: of the repository.
    """
    total = hashlib.sha256(f"{sys.version_info[:2]} {SAME_WHEELS}\n".encode())
    paths = [root / CONSTRAINTS] if (root / CONSTRAINTS).exists() else []
    for part in DISTRIBUTIONS:
        paths += sorted(path for path in (root / part).rglob("*") if path.is_file())
    for path in paths:
        place = path.relative_to(root)
        if not any(Path(name).match(pattern) for name in place.parts for pattern in PRODUCTS):
            total.update(f"{place} {sha256_of(path)}\n".encode())
    return total.hexdigest()


def pack_agent(root: Path, target: Path) -> Packed:
    """The host agent as wheels in a tar: hosts install from it, and ask no index.

    Args:
        root: of the repository.

    Raises:
        PackFailed: a wheel could not be built or fetched.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="osgym-pack-") as name:
        folder = Path(name)
        for part in DISTRIBUTIONS:
            # A copy, since building leaves things behind.
            ignore = shutil.ignore_patterns(*PRODUCTS)
            shutil.copytree(root / part, folder / "source" / part, ignore=ignore)
        argv = [sys.executable, "-m", "pip", "wheel", "-q", "--disable-pip-version-check"]
        if (root / CONSTRAINTS).exists():
            argv += ["-c", str(root / CONSTRAINTS)]
        argv += ["-w", str(folder / "wheels"), *(str(folder / "source" / part) for part in DISTRIBUTIONS)]
        _run(argv, BUILD_S)
        _tar(target, [*NOBODYS_TAR, "-C", str(folder / "wheels"), "."])
    return Packed(target, sha256_of(target))


def pack_image(data_dir: Path, name: str, target: Path, *, machines: bool = False) -> Packed:
    """An image of the store as the bootstrap takes it: folders below the data directory, ids as they are.

    Args:
        data_dir: the store, as `osgym image build` fills it.
        name: of the image: `full`, `small`.
        machines: with its bootable disk and its snapshots, for `runtime: qemu`.

    Raises:
        PackFailed: there is no such image, or no disk or snapshot of it.
    """
    digest = _tagged(data_dir, "images", name)
    members = [f"images/{digest}", f"images/tags/{name}"]
    if machines:
        members += [f"disks/{_tagged(data_dir, 'disks', name)}", f"disks/tags/{name}"]
        snapshots = sorted((data_dir / "snapshots" / "tags").glob(f"{name}@*"))
        if not snapshots:
            raise PackFailed(f"there is no snapshot of {name} in {data_dir}: osgym image snapshot {name}")
        for tag in snapshots:
            members += [f"snapshots/{_tagged(data_dir, 'snapshots', tag.name)}", f"snapshots/tags/{tag.name}"]
    target.parent.mkdir(parents=True, exist_ok=True)
    # Most of a frozen machine's RAM file is holes. With them no two archives are quite the same: tar puts its
    # process number into the names of such files.
    sparse = ["--sparse"] if machines else []
    _tar(target, [*EXACT_TAR, *sparse, "-C", str(data_dir), *dict.fromkeys(members)])
    return Packed(target, sha256_of(target), digest)


def config_lines(agent: Packed, image: Packed, name: str) -> str:
    """What stands in a stack's configuration to use both; `file://` means this machine."""
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
    """SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _tagged(data_dir: Path, kind: str, name: str) -> str:
    try:
        digest = (data_dir / kind / "tags" / name).read_text().strip().removeprefix("sha256:")
    except OSError as error:
        raise PackFailed(f"there is no {name} among the {kind} in {data_dir}: osgym image build") from error
    if not (data_dir / kind / digest / "manifest.json").is_file():
        raise PackFailed(f"{kind}/{digest[:12]} in {data_dir} is incomplete")
    return digest


def _tar(target: Path, arguments: list[str]) -> None:
    unfinished = target.with_name(f".{target.name}.part")
    try:
        _run(["tar", "-cf", str(unfinished), *SAME_TAR, *arguments], PACK_S)
        unfinished.replace(target)
    finally:
        unfinished.unlink(missing_ok=True)


def _run(argv: list[str], timeout_s: float) -> None:
    try:
        done = subprocess.run(
            argv, env={**os.environ, **SAME_WHEELS}, capture_output=True, text=True, timeout=timeout_s,
            check=False,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        raise PackFailed(f"{argv[0]}: {error}") from error
    if done.returncode != 0:
        said = "\n".join((done.stderr or done.stdout).splitlines()[-20:])
        raise PackFailed(f"{' '.join(argv[:4])} … ended with {done.returncode}:\n{said}")
