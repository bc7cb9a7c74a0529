"""Images that a runtime makes of golden images, such as bootable disks and snapshots, and their stores."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from osgym_host.images.content_store import ContentStore
from osgym_host.images.definition import ImageSource
from osgym_host.images.progress import BakeProgress
from osgym_host.images.store import Image, ImageStore


@dataclass(frozen=True, slots=True)
class DerivedBuild:
    """Golden image to be made into another format.

    Attributes:
        source: Definition of the golden image.
        store: Store that holds it.
        format: One of `DerivedImages.formats`.
        refresh: Make it anew although one of the same definition exists.
    """

    source: ImageSource
    store: ImageStore
    image: Image
    format: str
    refresh: bool = False


@dataclass(frozen=True, slots=True)
class DerivedImage:
    """Image in another format, as `osgym image build` reports it.

    Attributes:
        path: File or folder for people to use.
        row: Fields for `--json`.
    """

    name: str
    digest: str
    size_bytes: int
    path: Path
    row: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class DerivedStore:
    """Store of derived images, as `osgym image` lists it.

    Attributes:
        row: Returns the fields of an entry of the store.
        columns: Heading of each column of the table, and the format of its cells.
        listed: `osgym image ls` prints this table below that of golden images.
    """

    store: ContentStore[Any, Any]
    row: Callable[[Any, Any], Mapping[str, object]]
    columns: Mapping[str, str]
    listed: bool = False

    def rows(self) -> list[Mapping[str, object]]:
        """Return the fields of all entries, the newest first."""
        return [self.row(found, self.store) for found in self.store.all()]


class DerivedImages(ABC):
    """Derived images of one runtime.

    Attributes:
        formats: Formats that `osgym image build --format` takes.
    """

    formats: tuple[str, ...]

    @abstractmethod
    def build(self, request: DerivedBuild, progress: BakeProgress) -> DerivedImage:
        """Make a golden image into another format; fast if one of the same definition exists. Blocking.

        Raises:
            ImageError: It cannot be made.
        """

    @abstractmethod
    def definition_parts(self, folder: Path) -> tuple[str, ...]:
        """Return digests of all that derived images are made of, besides the golden image.

        Args:
            folder: Folder of the images' definitions.
        """

    @abstractmethod
    def stores(self, data_dir: Path) -> tuple[DerivedStore, ...]:
        """Return the stores of the data directory."""
