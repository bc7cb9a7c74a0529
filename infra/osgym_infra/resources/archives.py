"""Archives as resources of our provider: checks of their inputs, and what a change leads to."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from pathlib import Path
from typing import Any

from pulumi.provider.experimental import provider as api
from pulumi.provider.experimental.property_value import PropertyValue

from osgym_infra.archives import make
from osgym_infra.archives.make import AGENT, IMAGE
from osgym_infra.archives.pack import PackedArchive
from osgym_infra.links.errors import CommandFailed, FleetHostError
from osgym_infra.links.link import OutputListener
from osgym_infra.resources.values import Values, plain_all, wrapped

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

PREVIEW = "MAKE_PREVIEW"
"""A variable that `make preview` sets."""

Run = Callable[[Coroutine[Any, Any, PackedArchive]], Awaitable[PackedArchive]]
"""Runs what makes an archive so that the engine can cancel it."""


def problems(kind: str, values: Mapping[str, Any]) -> dict[str, str]:
    """Return what is wrong with an archive's inputs, by input."""
    known = INPUTS[kind]
    found = {name: f"unknown input; valid inputs are {', '.join(known)}" for name in values.keys() - known}
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


async def check(kind: str, request: api.CheckRequest) -> api.CheckResponse:
    """Add the definition's digest, so that a preview shows a changed definition."""
    values = plain_all(request.new_inputs)
    wrong = problems(kind, values)
    given = dict(request.new_inputs)
    if not wrong:
        try:
            given[DEFINITION] = wrapped(await make.definition(kind, values))
        except CommandFailed as error:
            wrong["flavor"] = f"(osgym:image_name, osgym:image_lock): {error.output}"
        except (FleetHostError, OSError) as error:
            wrong[DEFINITION] = str(error)
    # One that is there already needs nothing made; `make preview` makes nothing.
    is_new = plain_all(request.old_inputs).get(DEFINITION) != plain_all(given).get(DEFINITION)
    if not wrong and is_new and PREVIEW not in os.environ and (why := make.needs_kvm_here(values)):
        wrong["kvm"] = f"(osgym:runtime): {why}"
    return api.CheckResponse(given, [api.CheckFailure(name, why) for name, why in sorted(wrong.items())])


def diff(request: api.DiffRequest) -> api.DiffResponse:
    """Compare inputs; changes are made in place, since two archives may be the same file."""
    found = changed(plain_all(request.old_state), plain_all(request.new_inputs))
    update = api.PropertyDiffKind.UPDATE
    detailed = {name: api.PropertyDiff(update, input_diff=name == DEFINITION) for name in found}
    return api.DiffResponse(bool(found), [], diffs=found, detailed_diff=detailed)


async def create(kind: str, request: api.CreateRequest, run: Run, say: OutputListener) -> api.CreateResponse:
    """Make the archive; a preview makes nothing and knows nothing of it."""
    if request.preview:
        return api.CreateResponse(properties=dict(request.properties))
    values = plain_all(request.properties)
    made = await run(make.make(kind, values, say))
    return api.CreateResponse(archive_id(kind, values), _outputs(request.properties, made))


async def update(kind: str, request: api.UpdateRequest, run: Run, say: OutputListener) -> api.UpdateResponse:
    """Make another archive, then remove the former one."""
    if request.preview:
        return api.UpdateResponse(dict(request.news))
    made = await run(make.make(kind, plain_all(request.news), say))
    former = plain_all(request.olds)
    if former.get("archive") != str(made.path):
        _remove(former)
    return api.UpdateResponse(_outputs(request.news, made))


def read(request: api.ReadRequest) -> api.ReadResponse:
    """Check that the archive exists; a missing one is made by the next `pulumi up`."""
    if not intact(plain_all(request.properties)):
        return api.ReadResponse("", {}, {})
    return api.ReadResponse(request.resource_id, request.properties, request.inputs)


def delete(request: api.DeleteRequest) -> None:
    """Remove the archive, never the image in the store."""
    _remove(plain_all(request.properties))


def _remove(state: Mapping[str, Any]) -> None:
    if path := state.get("archive"):
        Path(path).unlink(missing_ok=True)


def _outputs(given: Values, made: PackedArchive) -> dict[str, PropertyValue]:
    size = made.path.stat().st_size
    found = {"archive": str(made.path), "sha256": made.sha256, "size": size, "digest": made.digest}
    return {**given, **{name: wrapped(found[name]) for name in OUTPUTS}}
