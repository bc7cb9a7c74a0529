"""Model of `golden.toml`: packages in groups, flavors, applications, the user, required programs."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, model_validator

from osgym_host.images.errors import DefinitionError

DEFINITION_FORMAT = 1
"""Version of `golden.toml` that this code reads."""


class StrictModel(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Account(StrictModel):
    name: str
    uid: int
    home: str
    password: str


class DpkgFilters(StrictModel):
    """Paths that dpkg skips, and keeps, when it unpacks."""

    exclude: list[str] = []
    include: list[str] = []


class PythonExtras(StrictModel):
    """Pinned Python distributions that Debian does not have."""

    requirements: list[str] = []


class PackageGroup(StrictModel):
    """Packages that belong together.

    Attributes:
        exclude: Paths that dpkg skips, besides those of all flavors.
        links: Hard links: path to the name of a file in the same folder.
    """

    about: str
    packages: list[str]
    exclude: list[str] = []
    links: dict[str, str] = {}


class Flavor(StrictModel):
    """One image that can be baked."""

    about: str
    groups: list[str]


class App(StrictModel):
    """An application that users recognise, and the check that it works.

    Attributes:
        id: Short name used by tasks, benchmarks and checks.
        about: One line for the menu.
        icon: Name in the icon theme.
        panel, desktop: It has an icon there.
        window_class: Class part of WM_CLASS of its main window.
    """

    id: str
    name: str
    about: str
    category: str
    command: list[str]
    icon: str
    window_class: str
    flavors: list[str]
    panel: bool = False
    desktop: bool = False


class Definition(StrictModel):
    """Content of `golden.toml`."""

    format: int
    suite: str
    components: list[str]
    screen: Annotated[tuple[int, int], Field()]
    locale: str
    timezone: str
    source_date_epoch: int
    user: Account
    dpkg: DpkgFilters
    python: PythonExtras
    groups: dict[str, PackageGroup]
    flavors: dict[str, Flavor]
    apps: list[App] = []
    binaries: dict[str, list[str]] = {}

    @model_validator(mode="after")
    def _consistent(self) -> Definition:
        if self.format != DEFINITION_FORMAT:
            raise ValueError(f"format {self.format} is not {DEFINITION_FORMAT}")
        for name, flavor in self.flavors.items():
            unknown = set(flavor.groups) - set(self.groups)
            if unknown:
                raise ValueError(f"flavor {name} names unknown groups: {', '.join(sorted(unknown))}")
        for app in self.apps:
            if set(app.flavors) - set(self.flavors):
                raise ValueError(f"app {app.id} names an unknown flavor")
        return self

    def packages(self, flavor: str) -> list[str]:
        """Return the names of the packages in order, without repetition."""
        names = [package for group in self.flavor(flavor).groups for package in self.groups[group].packages]
        return list(dict.fromkeys(names))

    def excludes(self, flavor: str) -> list[str]:
        """Return the paths that dpkg skips in this flavor."""
        groups = self.flavor(flavor).groups
        return [*self.dpkg.exclude, *(path for name in groups for path in self.groups[name].exclude)]

    def links(self, flavor: str) -> dict[str, str]:
        groups = self.flavor(flavor).groups
        return {path: name for group in groups for path, name in self.groups[group].links.items()}

    def flavor(self, name: str) -> Flavor:
        """Return the flavor of this name.

        Raises:
            DefinitionError: The definition has no such flavor.
        """
        try:
            return self.flavors[name]
        except KeyError:
            known = ", ".join(sorted(self.flavors))
            raise DefinitionError(f"unknown flavor {name!r}", f"valid flavors: {known}") from None

    def apps_of(self, flavor: str) -> list[App]:
        return [app for app in self.apps if flavor in app.flavors]

    def binaries_of(self, flavor: str) -> list[str]:
        """Return the names of programs that must be on PATH in this flavor."""
        return [*self.binaries.get("all", []), *self.binaries.get(flavor, [])]
