"""What `golden.toml` can say: packages in groups, flavors, applications, the user, what must be there."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, model_validator

from osgym_host.images.errors import DefinitionError

DEFINITION_FORMAT = 1
"""The version of `golden.toml` this code reads."""


class StrictModel(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Account(StrictModel):
    """The person who sits at the desktop."""

    name: str
    uid: int
    home: str
    password: str


class DpkgFilters(StrictModel):
    """Paths that dpkg leaves out of, and keeps in, what it unpacks."""

    exclude: list[str] = []
    include: list[str] = []


class PythonExtras(StrictModel):
    """Python distributions that Debian does not have, pinned."""

    requirements: list[str] = []


class PackageGroup(StrictModel):
    """Packages that belong together.

    Attributes:
        exclude: Paths that dpkg leaves out, besides those of all flavors.
        links: Hard links to make: path to the name of a file in the same folder.
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
    """An application a user would recognise, and how to tell that it works.

    Attributes:
        id: Short name used by tasks, benchmarks and checks.
        about: One line for the menu.
        icon: Name in the icon theme.
        panel, desktop: Whether it has an icon there.
        command: What starts it.
        window_class: The class part of WM_CLASS of its main window.
        flavors: The flavors that have it.
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
    """All of `golden.toml`."""

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
        """Return the packages asked for by name, in order, without repetition."""
        names = [package for group in self.flavor(flavor).groups for package in self.groups[group].packages]
        return list(dict.fromkeys(names))

    def excludes(self, flavor: str) -> list[str]:
        """Paths that dpkg leaves out in this flavor."""
        groups = self.flavor(flavor).groups
        return [*self.dpkg.exclude, *(path for name in groups for path in self.groups[name].exclude)]

    def links(self, flavor: str) -> dict[str, str]:
        """Hard links of this flavor."""
        groups = self.flavor(flavor).groups
        return {path: name for group in groups for path, name in self.groups[group].links.items()}

    def flavor(self, name: str) -> Flavor:
        """Return the flavor of this name.

        Raises:
            DefinitionError: The name is not one of the definition.
        """
        try:
            return self.flavors[name]
        except KeyError:
            known = ", ".join(sorted(self.flavors))
            raise DefinitionError(f"no flavor is called {name!r}", f"there are: {known}") from None

    def apps_of(self, flavor: str) -> list[App]:
        """Return the applications of a flavor."""
        return [app for app in self.apps if flavor in app.flavors]

    def binaries_of(self, flavor: str) -> list[str]:
        """Program names that must be on PATH in this flavor."""
        return [*self.binaries.get("all", []), *self.binaries.get(flavor, [])]
