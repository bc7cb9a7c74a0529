"""Inputs of archives: checks, and the consequence of a change. Pure but for a look at a file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from osgym_infra.archives.make import AGENT, IMAGE

INPUTS: Mapping[str, Mapping[str, type]] = {
    IMAGE: {"folder": str, "flavor": str, "lock": str, "machines": bool, "kvm": bool},
    AGENT: {"folder": str},
}
"""By resource. `folder`: absolute, where the archive is kept. `flavor`: of the golden image. `lock`: a file
of exact package versions; empty: those of the day. `machines`: with bootable disk and snapshots.
`kvm`: for hosts that have KVM, to which nothing goes that was frozen without."""

DEFINITION = "definition"
"""An input that `check` adds: the digest of what the archive is made from. While it is the same, nothing is
made anew."""

OUTPUTS = ("archive", "sha256", "size", "digest")
"""The file, its SHA-256, its size in bytes; of an image its digest in the store, too."""


def problems(kind: str, values: Mapping[str, Any]) -> dict[str, str]:
    """Return what is wrong with an archive's inputs, by input."""
    known = INPUTS[kind]
    found = {name: f"there is no such input; there are {', '.join(known)}" for name in values.keys() - known}
    for name, of_type in known.items():
        if not isinstance(values.get(name, of_type()), of_type):
            found[name] = f"is not of type {of_type.__name__}"
    if "folder" not in found and not Path(values.get("folder", "")).is_absolute():
        found["folder"] = "is not an absolute path"
    if kind == IMAGE and not values.get("flavor"):
        found.setdefault("flavor", "is missing")
    return found


def changed(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """Return why the archive has to be made anew: another definition, or a missing file.

    Another folder alone is no reason: it is for the next one.
    """
    found = [DEFINITION] if old.get(DEFINITION) != new.get(DEFINITION) else []
    return found if intact(old) else [*found, "archive"]


def intact(state: Mapping[str, Any]) -> bool:
    """Return whether the archive of a state still exists with its size."""
    path = Path(state.get("archive", ""))
    return path.is_file() and path.stat().st_size == state.get("size")


def archive_id(kind: str, values: Mapping[str, Any]) -> str:
    return "agent" if kind == AGENT else f"image-{values['flavor']}"
