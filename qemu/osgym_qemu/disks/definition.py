"""Definition of bootable disks: `images/vm/vm.toml`, files and scripts laid over a golden image."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field

from osgym_host.images.definition import read_definition, tree_hash
from osgym_host.images.definition_model import StrictModel


class Named(StrictModel):
    """A package, unit or module, and the reason for it."""

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9@.+_-]*$")
    why: str = Field(min_length=8)


class Argument(StrictModel):
    """A word of the kernel's command line, and the reason for it."""

    value: str = Field(pattern=r"^[!-~]+$")
    why: str = Field(min_length=8)


class Sysctl(StrictModel):
    """A kernel setting, and the reason for it."""

    name: str = Field(pattern=r"^[a-z0-9_.]+$")
    value: str
    why: str = Field(min_length=8)


class DiskSizes(StrictModel):
    """Sizes of the disk's parts in MiB."""

    free_mib: int = Field(ge=64)
    efi_mib: int = Field(ge=40)
    journal_mib: int = Field(ge=4)


class VmDefinition(StrictModel):
    """Content of `vm.toml`."""

    format: Literal[1]
    packages: list[Named]
    initrd_modules: list[Named]
    kernel_arguments: list[Argument]
    sysctls: list[Sysctl]
    masked_units: list[Named]
    disk: DiskSizes


class VmSource:
    """The definition with its folder.

    Attributes:
        folder: Folder `images/vm` of the project.
        definition: Content of its `vm.toml`.
    """

    def __init__(self, images_folder: Path) -> None:
        self.folder = images_folder.resolve() / "vm"
        self.definition = read_definition(self.folder / "vm.toml", VmDefinition)

    @property
    def files(self) -> Path:
        """Tree that is copied into the root file system."""
        return self.folder / "files"

    @property
    def scripts(self) -> list[Path]:
        """Provisioning scripts in the order they run."""
        return sorted((self.folder / "provision").glob("[0-9]*"))

    def key(self) -> str:
        return tree_hash([self.folder])

    def kernel_append(self, root_uuid: str) -> str:
        """Return the kernel's command line for a root file system of this UUID."""
        words = [argument.value for argument in self.definition.kernel_arguments]
        return " ".join([f"root=UUID={root_uuid}", "ro", *words])

    def write_generated(self, target: Path, root_uuid: str) -> None:
        """Write the generated files, as a tree to be copied in."""
        wanted = self.definition
        head = "# Made from images/vm/vm.toml, which gives the reasons.\n"
        files = {
            "etc/fstab": f"UUID={root_uuid} / ext4 noatime,errors=remount-ro 0 0\n",
            "etc/sysctl.d/60-osgym.conf": head
            + "".join(f"{item.name} = {item.value}\n" for item in wanted.sysctls),
            "usr/share/initramfs-tools/modules.d/osgym": head
            + "".join(f"{item.name}\n" for item in wanted.initrd_modules),
            "osgym-bake/vm/masked-units": "".join(f"{item.name}\n" for item in wanted.masked_units),
        }
        for name, text in files.items():
            path = target / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
