"""Additions: folders by which a team extends a flavor to an image of its own.

addition.toml     flavor that it extends, packages, applications, required programs debs/*.deb        packages
that Debian does not have, installed without a network files/            copied into the root provision/NN-*
programs that run in the image, among the desktop's own by their numbers
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, ValidationError

from osgym_host.images.definition_model import App, Definition, Flavor, PackageGroup, StrictModel
from osgym_host.images.errors import DefinitionError

Name = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9-]{0,40}$")]
PackageName = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9+.-]*$")]


class AddedApp(StrictModel):
    """An application as `golden.toml` describes it, without the flavors that have it."""

    id: str
    name: str
    about: str
    category: str
    command: Annotated[list[str], Field(min_length=1)]
    icon: str
    window_class: str
    panel: bool = False
    desktop: bool = False


class AdditionDefinition(StrictModel):
    """Content of `addition.toml`.

    Attributes:
        name: Name of the image, and of the flavor that it becomes.
        base: Flavor that it extends.
        packages: Names of Debian packages, those included on which the packages of `debs/` depend.
        exclude: Paths that dpkg skips when it unpacks any package, besides those of the base.
        binaries: Programs that must be on PATH, else the bake fails.
    """

    format: Literal[1]
    name: Name
    about: str
    base: str = "full"
    packages: list[PackageName] = Field(default_factory=list)
    exclude: list[str] = Field(default_factory=list)
    apps: list[AddedApp] = Field(default_factory=list)
    binaries: list[str] = Field(default_factory=list)


class Addition:
    """Folder of an addition.

    Attributes:
        definition: Content of its `addition.toml`.
    """

    def __init__(self, folder: Path) -> None:
        """Read the folder.

        Raises:
            DefinitionError: It is no addition, or its definition is invalid.
        """
        self.folder = folder.resolve()
        path = self.folder / "addition.toml"
        try:
            with path.open("rb") as file:
                self.definition = AdditionDefinition.model_validate(tomllib.load(file))
        except OSError as exc:
            hint = "an addition must be a folder with addition.toml in it (images/README.md)"
            raise DefinitionError(f"{path} cannot be read: {exc.strerror}", hint) from exc
        except (tomllib.TOMLDecodeError, UnicodeDecodeError, ValidationError) as exc:
            raise DefinitionError(f"{path}: {exc}") from exc

    @property
    def files(self) -> Path:
        return self.folder / "files"

    @property
    def debs(self) -> Path:
        """Folder of packages that Debian does not have."""
        return self.folder / "debs"

    @property
    def scripts(self) -> list[Path]:
        return sorted((self.folder / "provision").glob("[0-9]*"))

    def laid_over(self, golden: Definition) -> Definition:
        """Return the definition extended by this addition's flavor.

        Raises:
            DefinitionError: A flavor of its name exists, or its base does not.
        """
        added = self.definition
        if added.name in golden.flavors or added.name in golden.groups:
            raise DefinitionError(f"{self.folder}: the name {added.name!r} is taken", "choose another name")
        base = golden.flavor(added.base)
        group = PackageGroup(about=added.about, packages=added.packages, exclude=added.exclude)
        apps = [
            app.model_copy(update={"flavors": [*app.flavors, added.name]})
            if added.base in app.flavors
            else app
            for app in golden.apps
        ]
        known = {app.id for app in apps}
        if taken := sorted(known & {app.id for app in added.apps}):
            raise DefinitionError(f"{self.folder}: an app already has the id {', '.join(taken)}")
        apps += [App(**app.model_dump(), flavors=[added.name]) for app in added.apps]
        return golden.model_copy(
            update={
                "groups": {**golden.groups, added.name: group},
                "flavors": {
                    **golden.flavors,
                    added.name: Flavor(about=added.about, groups=[*base.groups, added.name]),
                },
                "apps": apps,
                "binaries": {
                    **golden.binaries,
                    added.name: [*golden.binaries.get(added.base, []), *added.binaries],
                },
            }
        )
