"""Look-up of a file by the path that programs of a desktop use, on the disk of a virtual machine.

The programs' root is not the disk's: `osgym-session` (guest_agent/native/session_machine.c) lays a layer of
theirs, the folder `/.session` of the disk, over the folders of the image. Layout of such a layer:
Documentation/filesystems/overlayfs of Linux. A disk without that folder is what its programs see.
"""

from __future__ import annotations

import stat
from dataclasses import dataclass

from osgym_host.tasks.evaluator.disk.ext4 import Ext4, Inode, find_volume
from osgym_host.tasks.evaluator.disk.layers import LayeredDisk, NotThere

_MAX_LINKS = 40
_SHARED = b"home"
"""The folder of the disk that programs see as it is."""
_TRUSTED = 4  # EXT4_XATTR_INDEX_TRUSTED
_OPAQUE = b"overlay.opaque"


def read_file(disk: LayeredDisk, path: str, max_bytes: int) -> bytes:
    """Return the content of a file by its absolute path; links are followed, permissions do not count.

    Raises:
        NotThere: The path leads to no regular file.
        DiskUnreadable: It is too large, or the file system is damaged or of another kind.
    """
    volume = find_volume(disk)
    inode = _find(_View(volume), path).inode
    if not stat.S_ISREG(inode.mode):
        raise NotThere("is not a regular file")
    return volume.content(inode, max_bytes)


@dataclass(frozen=True, slots=True)
class _Place:
    """A file, folder or link; with a folder of a layer, the image's folder that shows through it."""

    inode: Inode
    below: Inode | None = None


def _find(view: _View, path: str) -> _Place:
    """Follow a path from the root on, and the links in it."""
    ahead = [part for part in path.split("/") if part not in ("", ".")][::-1]
    behind, links = [view.root], 0
    while ahead:
        part = ahead.pop()
        if part == "..":
            behind = behind[:-1] or behind
            continue
        place = view.entry(behind[-1], part.encode("utf-8", "surrogateescape"))
        if not stat.S_ISLNK(place.inode.mode):
            behind.append(place)
            continue
        links += 1
        if links > _MAX_LINKS:
            raise NotThere("is a loop of symbolic links")
        target = view.volume.link(place.inode)
        behind = behind[:1] if target.startswith("/") else behind
        ahead += [part for part in target.split("/") if part not in ("", ".")][::-1]
    return behind[-1]


class _View:
    """File system of a disk as programs see it."""

    def __init__(self, volume: Ext4) -> None:
        self.volume = volume
        layer = self._at(volume.root, b".session")
        root = None if layer is None else self._at(layer, b"root")
        self._upper = None if layer is None or root is None else self._at(layer, b"upper")
        self.root = _Place(root or volume.root)

    def entry(self, folder: _Place, name: bytes) -> _Place:
        """Return a folder's entry of that name.

        Raises:
            NotThere: Nothing, or it is no folder.
        """
        if self._upper is not None and folder == self.root:
            return self._top(name)
        above = self._at(folder.inode, name)
        if above is None:
            if folder.below is None:
                raise NotThere("does not exist")
            return _Place(self.volume.entry(folder.below, name))
        if stat.S_ISCHR(above.mode):  # a mark: what the image has there was removed
            raise NotThere("does not exist")
        return _Place(above, self._shown_through(above, folder.below, name))

    def _top(self, name: bytes) -> _Place:
        """Return the entry of that name in the programs' root, or in a layer over the image."""
        image = self._at(self.volume.root, name)
        if name == _SHARED and image is not None:
            return _Place(image)
        upper = None if self._upper is None else self._at(self._upper, name)
        if upper is not None and image is not None:
            return _Place(upper, image)
        return _Place(self.volume.entry(self.root.inode, name))

    def _shown_through(self, above: Inode, below: Inode | None, name: bytes) -> Inode | None:
        """Return the image's folder below a folder of the layer; None if the layer hides it."""
        if below is None or not stat.S_ISDIR(above.mode):
            return None
        found = self._at(below, name)
        if found is None or not stat.S_ISDIR(found.mode):
            return None
        return None if self.volume.attribute(above, _TRUSTED, _OPAQUE) == b"y" else found

    def _at(self, folder: Inode, name: bytes) -> Inode | None:
        if not stat.S_ISDIR(folder.mode):
            raise NotThere("does not exist")
        try:
            return self.volume.entry(folder, name)
        except NotThere:
            return None
