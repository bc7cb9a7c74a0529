"""Definition of the golden image: `golden.toml`, files, scripts, and a team's addition."""

from __future__ import annotations

import hashlib
import os
import stat
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import TypeVar

from pydantic import ValidationError

from osgym_host.images.additions import Addition
from osgym_host.images.definition_model import Definition, StrictModel
from osgym_host.images.errors import DefinitionError

BAKE_FOLDER = "osgym-bake"
"""Folder of scripts, packages and remedies in the image during a bake; removed at the end."""

_OF_PACKAGES = "15-debs"
"""Script of `provision/added/` for additions with packages of their own."""

_Model = TypeVar("_Model", bound=StrictModel)


def read_definition(path: Path, kind: type[_Model]) -> _Model:
    """Read a definition.

    Raises:
        DefinitionError: It is missing or invalid.
    """
    try:
        with path.open("rb") as file:
            return kind.model_validate(tomllib.load(file))
    except FileNotFoundError:
        raise DefinitionError(f"{path} does not exist", "set OSGYM_IMAGES_DIR to the folder") from None
    except (tomllib.TOMLDecodeError, ValidationError) as exc:
        raise DefinitionError(f"{path}: {exc}") from exc


class ImageSource:
    """A definition with its folder.

    Attributes:
        folder: Folder `images/` of the project.
        definition: Content of its `golden.toml`, with the addition's flavor.
        addition: Addition that extends one of its flavors; None for none.
    """

    def __init__(self, folder: Path, addition: Addition | None = None) -> None:
        self.folder = folder.resolve()
        self.addition = addition
        golden = read_definition(self.folder / "golden.toml", Definition)
        self.definition = golden if addition is None else addition.laid_over(golden)

    @classmethod
    def of_flavor(cls, folder: Path, flavor: str) -> ImageSource:
        """Return the definition that has a flavor: of `golden.toml`, or an addition of `additions/`.

        Raises:
            DefinitionError: No definition has this name, or one cannot be read.
        """
        source = cls(folder)
        if flavor in source.definition.flavors:
            return source
        own = {path.name: path for path in (source.folder / "additions").glob("[!.]*") if path.is_dir()}
        if flavor not in own:
            known = ", ".join(sorted([*source.definition.flavors, *own]))
            raise DefinitionError(f"unknown flavor {flavor!r}", f"valid flavors: {known}")
        return cls(folder, Addition(own[flavor]))

    @property
    def trees(self) -> list[tuple[Path, str]]:
        own = [(self.folder / "files", "")]
        if self.addition is None:
            return own
        return [*own, (self.addition.files, ""), (self.addition.debs, f"{BAKE_FOLDER}/debs/")]

    def scripts(self, part: str) -> list[Path]:
        """Return the provisioning scripts of a part (`desktop` or `guest`) in the order they run.

        Raises:
            DefinitionError: An addition's script has the name of an existing one.
        """
        found = list((self.folder / "provision" / part).glob("[0-9]*"))
        if self.addition is not None and part == "desktop":
            debs = any(self.addition.debs.glob("*.deb"))
            added = (self.folder / "provision" / "added").glob("[0-9]*")
            found += [script for script in added if debs or script.name != _OF_PACKAGES]
            names = {script.name for script in found}
            for script in self.addition.scripts:
                if script.name in names:
                    raise DefinitionError(f"{script}: another script has that name", "give it another number")
                found.append(script)
        return sorted(found, key=lambda script: script.name)

    @property
    def remedies(self) -> list[Path]:
        """Return folders of remedies that have a `bake` program, by name."""
        folder = self.folder / "remedies"
        return sorted(path.parent for path in folder.glob("*/bake")) if folder.is_dir() else []

    def base_key(self, flavor: str, lock_digest: str | None) -> str:
        """Return the hash of the inputs of an image's package part."""
        wanted = self.definition
        parts = [
            wanted.suite,
            *wanted.components,
            str(wanted.source_date_epoch),
            *wanted.packages(flavor),
            "--",
            *wanted.excludes(flavor),
            "--",
            *wanted.dpkg.include,
            *(f"{path} {name}" for path, name in wanted.links(flavor).items()),
            lock_digest or "",
        ]
        return hash_of(*parts)[:16]

    def desktop_key(self) -> str:
        roots = [self.folder / "files", self.folder / "provision" / "desktop", self.folder / "golden.toml"]
        if self.addition is not None:
            roots += [self.folder / "provision" / "added", self.addition.folder]
        return tree_hash(roots)

    def guest_key(self) -> str:
        """Return the hash of the guest layer's inputs in this definition, without the guest agent."""
        return tree_hash([self.folder / "provision" / "guest", self.folder / "remedies"])


# Finding and hashing ---------------------------------------------------------------------------------


def find_images_folder() -> Path:
    """Return the definition's folder: OSGYM_IMAGES_DIR, or the one in this package."""
    configured = os.environ.get("OSGYM_IMAGES_DIR")
    return Path(configured) if configured else Path(__file__).parents[1] / "data" / "images"


def hash_of(*parts: str) -> str:
    """Return the SHA-256 of some strings without line breaks."""
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def tree_hash(roots: Iterable[Path]) -> str:
    """Return the hash of names, executable bits and contents of files and folders, without caches."""
    total = hashlib.sha256()
    for root in roots:
        paths = sorted(root.rglob("*")) if root.is_dir() else [root]
        for path in paths:
            if "__pycache__" in path.parts or path.suffix == ".pyc":
                continue
            if path.is_symlink():
                content = os.fsencode(path.readlink())
            elif path.is_file():
                content = path.read_bytes()
            else:
                continue
            executable = bool(path.lstat().st_mode & stat.S_IXUSR)
            total.update(f"{path.relative_to(root.parent)} {executable} {len(content)}\n".encode() + content)
    return total.hexdigest()
