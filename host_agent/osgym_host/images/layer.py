"""Layer over a tree: files, Python distributions, provisioning scripts, remedies."""

from __future__ import annotations

import io
import json
import os
import subprocess
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from osgym_host.images.definition import BAKE_FOLDER
from osgym_host.images.definition_model import Definition
from osgym_host.images.errors import BakeError, ImageError
from osgym_host.images.idmap import IdMap
from osgym_host.images.namespaces import NamespaceSpec, Overlay, call, operate, running
from osgym_host.images.progress import BakeProgress
from osgym_host.images.store import RemedyRecord

VIEW = "/mnt"
"""Path at which a remedy, run with this machine's programs, sees the image (in its own mount namespace)."""

_SAID = "osgym: "
"""Prefix of a script's lines that are shown."""

_REMEDY_DOES_NOT_APPLY = 10
_SCRIPT_TIMEOUT_S = 600.0


@dataclass(frozen=True, slots=True)
class Contents:
    """Content of a layer.

    Attributes:
        trees: Folders to copy in, each with the place (no leading slash, "" is the root).
        scripts: Programs to run in the image, in order.
        remedies: Folders of remedies to apply after the scripts.
    """

    trees: list[tuple[Path, str]]
    scripts: list[Path]
    remedies: list[Path] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class LayerBake:
    """Workspace in which a layer is made.

    Attributes:
        workspace: Folder with `upper`, `work` and `merged`.
        below: Tree below the layer, relative to the workspace.
    """

    definition: Definition
    flavor: str
    workspace: Path
    below: str
    idmap: IdMap

    @property
    def overlay(self) -> Overlay:
        """Return the writable view of the tree below."""
        return Overlay(self.below, "upper", "work", "merged")

    @property
    def epoch_s(self) -> int:
        return self.definition.source_date_epoch

    def inside(self, *, chroot: bool) -> NamespaceSpec:
        return NamespaceSpec(
            self.workspace,
            self.idmap,
            overlay=self.overlay,
            root="merged" if chroot else None,
            env=self.environment() if chroot else {},
        )

    def environment(self) -> dict[str, str]:
        """Return the variables of scripts, which describe the image."""
        wanted = self.definition
        return {
            "OSGYM_FLAVOR": self.flavor,
            "OSGYM_SCREEN": f"{wanted.screen[0]}x{wanted.screen[1]}",
            "OSGYM_USER": wanted.user.name,
            "OSGYM_UID": str(wanted.user.uid),
            "OSGYM_HOME": wanted.user.home,
            "OSGYM_PASSWORD": wanted.user.password,
            "OSGYM_LOCALE": wanted.locale,
            "OSGYM_TIMEZONE": wanted.timezone,
            "OSGYM_EPOCH": str(self.epoch_s),
        }


def make_layer(bake: LayerBake, contents: Contents, progress: BakeProgress) -> list[RemedyRecord]:
    """Copy files in, run scripts, apply remedies; afterwards `upper` holds the layer.

    Raises:
        BakeError: A script or a remedy failed.
    """
    operate(NamespaceSpec(bake.workspace, bake.idmap), "make", paths=["upper", "work", "merged"])
    _copy_in(bake, contents)
    for script in contents.scripts:
        progress.stage("layer", script.name)
        for line in _run(bake, f"/{BAKE_FOLDER}/scripts/{script.name}", script.name).splitlines():
            if line.startswith(_SAID):
                progress.note(line.removeprefix(_SAID))
    records = []
    for folder in contents.remedies:
        progress.stage("layer", f"remedy {folder.name}")
        records.append(_apply_remedy(bake, folder.name))
    operate(bake.inside(chroot=False), "remove", path=f"merged/{BAKE_FOLDER}")
    operate(
        NamespaceSpec(bake.workspace, bake.idmap),
        "clamp",
        path="upper",
        epoch_s=bake.epoch_s,
    )
    return records


def _copy_in(bake: LayerBake, contents: Contents) -> None:
    """Stream trees, scripts and remedies into the image as a tar archive."""
    argv = ["tar", "--extract", "--numeric-owner", "--same-permissions", "--keep-directory-symlink"]
    inside = bake.inside(chroot=False)
    with running(inside, [*argv, "-C", "merged"], stdin=subprocess.PIPE, stderr=subprocess.PIPE) as tar:
        assert tar.stdin is not None and tar.stderr is not None
        try:
            with tarfile.open(fileobj=tar.stdin, mode="w|") as archive:
                for name, path in _entries(contents):
                    _add(archive, name, path, bake.epoch_s)
                apps = [app.model_dump() for app in bake.definition.apps_of(bake.flavor)]
                _add_file(
                    archive,
                    f"{BAKE_FOLDER}/apps.json",
                    json.dumps(apps).encode(),
                    0o644,
                    bake.epoch_s,
                )
            tar.stdin.close()
        except BrokenPipeError:
            pass
        errors = tar.stderr.read().decode(errors="replace")
        if tar.wait() != 0:
            raise BakeError("layer", "copying files in failed", errors[-2000:])


def _entries(contents: Contents) -> Iterator[tuple[str, Path]]:
    """Yield name in the image and path here of everything that is copied in, folders first."""
    roots = list(contents.trees)
    roots += [(path, f"{BAKE_FOLDER}/scripts/") for path in {script.parent for script in contents.scripts}]
    roots += [(folder, f"{BAKE_FOLDER}/remedies/{folder.name}/") for folder in contents.remedies]
    for root, prefix in roots:
        if not root.is_dir():
            continue
        for path in sorted(root.rglob("*")):
            if "__pycache__" not in path.parts:
                yield prefix + str(path.relative_to(root)), path


def _add(archive: tarfile.TarFile, name: str, path: Path, epoch_s: int) -> None:
    """Add one entry owned by root, with plain modes and a fixed time."""
    info = tarfile.TarInfo(name)
    info.mtime = epoch_s
    if path.is_symlink():
        info.type = tarfile.SYMTYPE
        info.linkname = os.readlink(path)  # noqa: PTH115  # the target as it is written
        archive.addfile(info)
    elif path.is_dir():
        info.type = tarfile.DIRTYPE
        info.mode = 0o755
        archive.addfile(info)
    else:
        mode = 0o755 if os.access(path, os.X_OK) else 0o644
        _add_file(archive, name, path.read_bytes(), mode, epoch_s)


def _add_file(archive: tarfile.TarFile, name: str, content: bytes, mode: int, epoch_s: int) -> None:
    info = tarfile.TarInfo(name)
    info.mtime = epoch_s
    info.size = len(content)
    info.mode = mode
    archive.addfile(info, io.BytesIO(content))


def _run(bake: LayerBake, program: str, name: str) -> str:
    try:
        return call(bake.inside(chroot=True), [program], timeout_s=_SCRIPT_TIMEOUT_S)
    except ImageError as exc:
        raise BakeError(f"provisioning ({name})", str(exc)) from exc


def _apply_remedy(bake: LayerBake, name: str) -> RemedyRecord:
    """Run a remedy's `bake`: 0 is success, 10 means that it does not apply, anything else fails the bake."""
    argv = [f"{VIEW}/{BAKE_FOLDER}/remedies/{name}/bake"]
    env = {**bake.environment(), "ROOTFS": VIEW}
    inside = NamespaceSpec(bake.workspace, bake.idmap, overlay=bake.overlay, view=VIEW, env=env)
    pipe = subprocess.PIPE
    with running(inside, argv, stdout=pipe, stderr=subprocess.STDOUT) as process:
        try:
            output, _ = process.communicate(timeout=_SCRIPT_TIMEOUT_S)
        except subprocess.TimeoutExpired as exc:
            raise BakeError(f"remedy {name}", "took too long") from exc
    text = output.decode(errors="replace").strip()
    if process.returncode not in (0, _REMEDY_DOES_NOT_APPLY):
        raise BakeError(f"remedy {name}", f"ended with {process.returncode}", text[-2000:])
    return RemedyRecord(name=name, applied=process.returncode == 0, message=text[-500:])
