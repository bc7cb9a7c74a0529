"""The files of the bootstrap."""

from __future__ import annotations

from pathlib import Path

BOOTSTRAP = Path(__file__).resolve().parents[2] / "bootstrap"
"""Where the bootstrap's files are in the repository, which programs are run from."""


def bootstrap_files(folder: Path = BOOTSTRAP) -> dict[str, bytes]:
    """All of them, by name: what every host has in one folder."""
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir()) if path.is_file()}
