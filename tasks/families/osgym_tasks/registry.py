"""All families by name."""

from __future__ import annotations

from osgym_tasks.families import (
    edit_lines,
    files_move_rule,
    term_count,
    term_csv_report,
    term_find_replace,
    term_modes,
)
from osgym_tasks.family import Family

FAMILIES: dict[str, Family] = {
    module.FAMILY.name: module.FAMILY
    for module in (
        edit_lines,
        files_move_rule,
        term_count,
        term_csv_report,
        term_find_replace,
        term_modes,
    )
}


class UnknownFamily(ValueError):
    """There is no family of that name; the message lists those there are."""


def family_named(name: str) -> Family:
    """The family of a name.

    Raises:
        UnknownFamily: there is none.
    """
    try:
        return FAMILIES[name]
    except KeyError:
        raise UnknownFamily(f"no family {name[:60]!r}; there are {', '.join(FAMILIES)}") from None
