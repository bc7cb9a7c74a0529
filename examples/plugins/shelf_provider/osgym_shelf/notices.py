"""Notices on a board: the shelf's controller writes a file before it switches the board off."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from osgym_host.notices.sources import NoticeFile, NoticeSource


def sources(url: str) -> Sequence[NoticeSource]:
    """Return the sources of a board; `url` is a cloud's metadata service, which a shelf has not."""
    return (NoticeFile(Path("/run/shelf/switched-off")),)
