"""The files of the bootstrap."""

from __future__ import annotations

from pathlib import Path

BOOTSTRAP = Path(__file__).resolve().parents[2] / "bootstrap"
"""Where the bootstrap's files are in the repository, which programs are run from."""


def bootstrap_files(folder: Path = BOOTSTRAP) -> dict[str, bytes]:
    """Return the bootstrap's files by name; every host has all of them in one folder."""
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir()) if path.is_file()}
