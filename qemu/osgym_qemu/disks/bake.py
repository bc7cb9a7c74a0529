"""Bake of a bootable disk from a golden image: a machine layer over its root file system, put onto a disk."""

from __future__ import annotations

import os
import tempfile
import time
import uuid
from dataclasses import dataclass
from pathlib import Path

from osgym_host.images.apt import WantedPackages, download
from osgym_host.images.content_store import open_folder
from osgym_host.images.definition import hash_of
from osgym_host.images.definition_model import Definition
from osgym_host.images.idmap import current_idmap
from osgym_host.images.layer import Contents, LayerBake, make_layer
from osgym_host.images.namespaces import NamespaceSpec, call, operate
from osgym_host.images.progress import BakeProgress
from osgym_host.images.store import Image, ImageStore
from osgym_qemu.disks import assemble
from osgym_qemu.disks.definition import VmSource
from osgym_qemu.disks.manifest import DiskFormat, DiskManifest, Firmware, GuestKind
from osgym_qemu.disks.store import INITRD, KERNEL, DiskImage, DiskStore

BUILDER_VERSION = 1
"""Version that is raised when this package makes another disk from the same inputs."""

_NAMESPACE = uuid.UUID("6b1f8d9e-0f5d-4f0e-9a55-7c1f3c8f5e21")
_EFI_LOADER = "usr/lib/systemd/boot/efi/systemd-bootx64.efi"


@dataclass(frozen=True, slots=True)
class DiskRequest:
    """Options of a disk bake.

    Attributes:
        image: Golden image, whose flavor becomes the disk's name.
        refresh: Make it anew, with today's packages, even if there is one of the same inputs.
    """

    image: Image
    format: DiskFormat
    refresh: bool = False


class DiskBaker:
    def __init__(
        self,
        definition: Definition,
        source: VmSource,
        images: ImageStore,
        disks: DiskStore,
        progress: BakeProgress,
    ) -> None:
        self._definition = definition
        self._source = source
        self._images = images
        self._disks = disks
        self._progress = progress

    def key(self, request: DiskRequest) -> str:
        """Return the hash of all inputs, but for the package versions that the mirror has today."""
        return hash_of(request.image.digest, self._source.key(), request.format, str(BUILDER_VERSION))

    def bake(self, request: DiskRequest) -> DiskImage:
        """Make a disk unless it exists; afterwards the flavor's tag names it.

        On any failure the store is unchanged, except for leftovers that the next bake removes.

        Raises:
            ImageError: A stage failed; the error has the end of its log.
        """
        begin_s = time.monotonic()
        assemble.require_tools()
        name = request.image.flavor
        self._images.prepare()
        with self._progress.shown(), self._disks.making(name, self._progress.wait):
            found = None if request.refresh else self._disks.made_from(self.key(request))
            if found is None:
                found = self._make(request, begin_s)
            else:
                self._progress.note("nothing changed: the disk already exists")
            self._disks.tag(name, found.digest)
            return found

    def _make(self, request: DiskRequest, begin_s: float) -> DiskImage:
        """Make layer, root file system and disk, and publish them under the digest of the inputs."""
        key = self.key(request)
        root_uuid = str(uuid.uuid5(_NAMESPACE, f"{key} root"))
        idmap = current_idmap()
        with self._disks.workspace() as workspace:
            open_folder(workspace, idmap)
            below = os.path.relpath(request.image.rootfs, workspace)
            layer = LayerBake(self._definition, request.image.flavor, workspace, below, idmap)
            versions, layer_digest = self._lay(layer, request.image, root_uuid)
            digest = hash_of(key, layer_digest)
            inside = layer.inside(chroot=False)
            made = workspace / "made"
            made.mkdir()
            layout = self._assemble(inside, workspace, made, root_uuid, digest, request.format)
            self._progress.stage("publish")
            manifest = DiskManifest(
                digest=digest,
                name=request.image.flavor,
                format=request.format,
                virtual_size_bytes=layout.disk_bytes,
                image_digest=request.image.digest,
                guest=GuestKind.OSGYM,
                kernel_append=self._source.kernel_append(root_uuid),
                firmware=Firmware.BIOS,
                screen=request.image.manifest.screen,
                source=f"golden image {request.image.flavor} {request.image.digest[:16]}",
                definition_key=key,
                packages=versions,
                size_bytes=sum(path.stat().st_blocks * 512 for path in made.iterdir()),
                bake_s=round(time.monotonic() - begin_s, 1),
                session_isolated=request.image.manifest.session_isolated,
            )
            _sync(made)
            return self._disks.publish(made, manifest)

    def _lay(self, layer: LayerBake, image: Image, root_uuid: str) -> tuple[dict[str, str], str]:
        """Make the machine layer; return the versions of its packages and the digest of its content."""
        with tempfile.TemporaryDirectory(prefix="osgym-vm-") as scratch_name:
            scratch = Path(scratch_name)
            self._progress.stage("fetch")
            status = scratch / "status"
            status.write_bytes((image.rootfs / "var/lib/dpkg/status").read_bytes())
            wanted = WantedPackages(
                suite=self._definition.suite,
                components=self._definition.components,
                names=[package.name for package in self._source.definition.packages],
                status=status,
                cache=self._images.packages,
                lists=self._images.data_dir / "cache" / "apt-lists" / "lists",
            )
            generated = scratch / "generated"
            debs = generated / "osgym-bake" / "packages"
            debs.parent.mkdir(parents=True)
            versions = download(wanted, debs)
            self._source.write_generated(generated, root_uuid)
            contents = Contents([(self._source.files, ""), (generated, "")], self._source.scripts)
            make_layer(layer, contents, self._progress)
        found = operate(NamespaceSpec(layer.workspace, layer.idmap), "digest", path="upper")
        return versions, str(found["digest"])

    def _assemble(
        self,
        inside: NamespaceSpec,
        workspace: Path,
        made: Path,
        root_uuid: str,
        digest: str,
        kind: DiskFormat,
    ) -> assemble.PartitionLayout:
        self._progress.stage("disk", "root file system")
        sizes = self._source.definition.disk
        measured = operate(inside, "measure", path="merged")
        layout = assemble.plan_layout(
            measured["bytes"], measured["entries"], sizes.free_mib, sizes.efi_mib, sizes.journal_mib
        )
        ids = assemble.Identifiers(
            disk=str(uuid.uuid5(_NAMESPACE, f"{digest} disk")),
            efi=str(uuid.uuid5(_NAMESPACE, f"{digest} efi")),
            root_partition=str(uuid.uuid5(_NAMESPACE, f"{digest} partition")),
            root=root_uuid,
        )
        raw = workspace / "disk.raw"
        with raw.open("wb") as file:
            file.truncate(layout.disk_bytes)
        raw.chmod(0o666)  # the mapped root writes the file system
        epoch_s = self._definition.source_date_epoch
        assemble.make_root(inside, raw, layout, ids, epoch_s, sizes.journal_mib)
        self._progress.stage("disk", "boot loaders")
        assemble.make_partitions(raw, layout, ids)
        boot = self._boot_files(inside, workspace, made, root_uuid)
        assemble.make_efi(raw, layout, ids, boot)
        raw.chmod(0o644)
        target = made / f"disk.{kind}"
        if kind is DiskFormat.RAW:
            raw.rename(target)
        else:
            self._progress.stage("disk", "convert to qcow2")
            assemble.convert(raw, target)
        return layout

    def _boot_files(
        self, inside: NamespaceSpec, workspace: Path, made: Path, root_uuid: str
    ) -> assemble.BootFiles:
        """Copy the boot files out of the tree, where they belong to shifted ids."""
        scratch = workspace / "boot"
        scratch.mkdir()
        scratch.chmod(0o777)
        sources = {KERNEL: "boot/osgym/vmlinuz", INITRD: "boot/osgym/initrd.img", "loader.efi": _EFI_LOADER}
        for name, path in sources.items():
            call(inside, ["install", "--mode=0644", f"merged/{path}", f"boot/{name}"], timeout_s=60)
        for name in (KERNEL, INITRD):
            (made / name).write_bytes((scratch / name).read_bytes())
        append = self._source.kernel_append(root_uuid)
        return assemble.BootFiles(made / KERNEL, made / INITRD, scratch / "loader.efi", append)


def _sync(folder: Path) -> None:
    for path in folder.iterdir():
        fd = os.open(path, os.O_RDONLY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)
