"""All families by name: each module of `osgym_tasks.families` that has a `FAMILY`."""

from __future__ import annotations

import importlib
import pkgutil

import osgym_tasks.families
from osgym_tasks.family import Family


def _found() -> dict[str, Family]:
    names = sorted(module.name for module in pkgutil.iter_modules(osgym_tasks.families.__path__))
    modules = [importlib.import_module(f"osgym_tasks.families.{name}") for name in names]
    families: list[Family] = [module.FAMILY for module in modules]
    return {family.name: family for family in families}


FAMILIES: dict[str, Family] = _found()


class UnknownFamily(ValueError):
    """Name that no family has; the message lists all names."""


def family_named(name: str) -> Family:
    """Return the family of a name.

    Raises:
        UnknownFamily: No family has that name.
    """
    try:
        return FAMILIES[name]
    except KeyError:
        raise UnknownFamily(f"unknown family {name[:60]!r}; valid families: {', '.join(FAMILIES)}") from None
