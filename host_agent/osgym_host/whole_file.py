"""Files that a reader finds whole or not at all. Not made durable: `images.content_store` does that."""

from __future__ import annotations

import os
from pathlib import Path


def write_whole(path: Path, data: bytes, mode: int = 0o600, owner: tuple[int, int] | None = None) -> None:
    """Write or replace a file. Only one process at a time may write it.

    Args:
        owner: User and group of the file; None: the writer's.

    Raises:
        OSError: It cannot be written; the old content stays.
    """
    fresh = path.with_name(f".{path.name}.new")
    fd = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(fd, "wb") as file:
            if owner is not None:
                os.fchown(fd, *owner)
            os.fchmod(fd, mode)
            file.write(data)
        fresh.replace(path)
    except BaseException:
        fresh.unlink(missing_ok=True)
        raise
