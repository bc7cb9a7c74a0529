"""Why a file could not be read from a disk."""

from __future__ import annotations


class DiskUnreadable(Exception):
    """Disk or file system are damaged, or use what is not read here."""


class NotThere(DiskUnreadable):
    """There is no such file: the path leads nowhere, or to what is no file."""
