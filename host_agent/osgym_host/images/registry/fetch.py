"""Blobs of a layout, fetched from several places: resumed, bounded, and verified before use."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Sequence
from pathlib import Path

from osgym_host.images.registry import oci
from osgym_host.images.registry.errors import RegistryCode, RegistryError
from osgym_host.images.registry.places import BLOCK, Place

_TRIES = 3
"""Number of times that each place is asked for a blob that breaks off."""


def read_index(place: Place) -> oci.OciIndex:
    """Return the images of a place; a place without an index has none.

    Raises:
        RegistryError: The index is malformed, or the place cannot be reached.
    """
    if place.size(oci.INDEX) is None:
        return oci.OciIndex()
    return oci.parse(oci.OciIndex, _bounded(place, oci.INDEX), f"{place.label}/{oci.INDEX}")


def read_document(place: Place, descriptor: oci.Descriptor) -> bytes:
    """Return a manifest or configuration, verified.

    Raises:
        RegistryError: The document is missing or too large, or its digest is not the one of the descriptor.
    """
    data = _bounded(place, descriptor.name)
    if len(data) != descriptor.size or hashlib.sha256(data).hexdigest() != descriptor.hex:
        raise _mismatch(place, descriptor)
    return data


class BlobFolder:
    """Folder of fetched blobs, in the form of a layout; unfinished ones are kept, to be resumed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def path(self, descriptor: oci.Descriptor) -> Path:
        """Return where a blob is once it is complete."""
        return self.folder / descriptor.name

    def fetch(self, descriptor: oci.Descriptor, mirrors: Sequence[Place], origin: Place) -> int:
        """Fetch a blob unless it is there; return the number of bytes that were moved.

        Mirrors are asked first, in random order; the digest makes it unimportant whom the blob comes from.

        Raises:
            RegistryError: No place has it as the descriptor says.
        """
        target = self.path(descriptor)
        target.parent.mkdir(parents=True, exist_ok=True)
        if target.is_file() and _digest(target) == descriptor.hex:
            return 0
        part = target.with_name(f"{target.name}.part")
        moved = 0
        places = [*random.sample(list(mirrors), len(mirrors)), origin]
        for number, place in enumerate(places * _TRIES):
            try:
                moved += _download(place, descriptor, part)
                part.replace(target)
                return moved
            except RegistryError as error:
                lasting = error.code is not RegistryCode.UNREACHABLE
                if place is origin and (lasting or number >= len(places) * _TRIES - 1):
                    raise
        raise AssertionError("the origin is asked last")


def _download(place: Place, descriptor: oci.Descriptor, part: Path) -> int:
    """Append to `part` what it lacks, and verify it; a part of another content is removed."""
    have = part.stat().st_size if part.is_file() else 0
    if have > descriptor.size:
        part.unlink()
        have = 0
    digest = hashlib.sha256()
    moved = 0
    with part.open("ab+") as file:
        file.seek(0)
        while data := file.read(BLOCK):
            digest.update(data)
        for data in place.read(descriptor.name, have) if have < descriptor.size else ():
            moved += len(data)
            if have + moved > descriptor.size:
                part.unlink()
                raise _mismatch(place, descriptor)
            digest.update(data)
            file.write(data)
    if have + moved < descriptor.size:
        raise place.failed(f"{descriptor.name} broke off after {have + moved} of {descriptor.size} bytes")
    if digest.hexdigest() != descriptor.hex:
        part.unlink()
        raise _mismatch(place, descriptor)
    return moved


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _bounded(place: Place, name: str) -> bytes:
    found = bytearray()
    for data in place.read(name):
        found += data
        if len(found) > oci.MAX_DOCUMENT_BYTES:
            text = f"{place.label}/{name} is larger than {oci.MAX_DOCUMENT_BYTES} bytes"
            raise RegistryError(RegistryCode.TOO_LARGE, text)
    return bytes(found)


def _mismatch(place: Place, descriptor: oci.Descriptor) -> RegistryError:
    text = f"{place.label}/{descriptor.name} does not have the content that its name and size say"
    return RegistryError(
        RegistryCode.DIGEST_MISMATCH, text, "push the image there anew, or pull from elsewhere"
    )
