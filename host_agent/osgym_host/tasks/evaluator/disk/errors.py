"""Errors of reading a file from a disk."""

from __future__ import annotations


class DiskUnreadable(Exception):
    """The disk or file system is damaged, or has a feature that this reader lacks."""


class NotThere(DiskUnreadable):
    """The path leads nowhere, or not to a file."""
