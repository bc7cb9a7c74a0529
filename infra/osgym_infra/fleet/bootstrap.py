"""The files of the bootstrap."""

from __future__ import annotations

from pathlib import Path

BOOTSTRAP = Path(__file__).resolve().parents[2] / "bootstrap"
"""Where the bootstrap's files are in the repository, which programs are run from."""


def bootstrap_files(folder: Path = BOOTSTRAP) -> dict[str, bytes]:
    """The files that every host unpacks at its first start."""
    return {name: (folder / name).read_bytes() for name in ("bootstrap.sh", "fetch.py")}
