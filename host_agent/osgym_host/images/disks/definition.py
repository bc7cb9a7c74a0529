"""Read what `images/vm/` says a virtual machine needs besides the golden root file system."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from osgym_host.images.definition import tree_hash
from osgym_host.images.errors import DefinitionError


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Named(_Strict):
    """A package, unit or module and why it is there."""

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9@.+_-]*$")
    why: str = Field(min_length=8)


class Argument(_Strict):
    """A word of the kernel's command line and why it is there."""

    value: str = Field(pattern=r"^[!-~]+$")
    why: str = Field(min_length=8)


class Sysctl(_Strict):
    """A kernel setting and why it is there."""

    name: str = Field(pattern=r"^[a-z0-9_.]+$")
    value: str
    why: str = Field(min_length=8)


class DiskLayout(_Strict):
    """Sizes of the disk's parts in MiB."""

    free_mib: int = Field(ge=64)
    efi_mib: int = Field(ge=40)
    journal_mib: int = Field(ge=4)


class VmDefinition(_Strict):
    """All of `vm.toml`."""

    format: Literal[1]
    packages: list[Named]
    initrd_modules: list[Named]
    kernel_arguments: list[Argument]
    sysctls: list[Sysctl]
    masked_units: list[Named]
    disk: DiskLayout


class VmSource:
    """The definition with the folder it came from.

    Attributes:
        folder: The folder `images/vm` of the project.
        definition: What its `vm.toml` says.
    """

    def __init__(self, images_folder: Path) -> None:
        self.folder = images_folder.resolve() / "vm"
        path = self.folder / "vm.toml"
        try:
            with path.open("rb") as file:
                self.definition = VmDefinition.model_validate(tomllib.load(file))
        except FileNotFoundError:
            raise DefinitionError(f"{path} does not exist", "set OSGYM_IMAGES_DIR to the folder") from None
        except (tomllib.TOMLDecodeError, ValidationError) as exc:
            raise DefinitionError(f"{path}: {exc}") from exc

    @property
    def files(self) -> Path:
        """The tree that is copied into the root file system."""
        return self.folder / "files"

    @property
    def scripts(self) -> list[Path]:
        """The provisioning scripts in the order they run."""
        return sorted((self.folder / "provision").glob("[0-9]*"))

    def key(self) -> str:
        """Hash of all of it."""
        return tree_hash([self.folder])

    def kernel_append(self, root_uuid: str) -> str:
        """The kernel's command line for a root file system of this UUID."""
        words = [argument.value for argument in self.definition.kernel_arguments]
        return " ".join([f"root=UUID={root_uuid}", "ro", *words])

    def write_generated(self, target: Path, root_uuid: str) -> None:
        """Write the files whose content the definition gives, as a tree to be copied in."""
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
