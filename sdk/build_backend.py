"""Build backend of the SDK: setuptools, and the protocol as a dependency that pip can find.

No package index has `osgym-protocol`. A wheel that pip builds from a tree (`pip install ./sdk`, or a git
address with `#subdirectory=sdk`) therefore names the protocol of the same tree. Editable installations and
releases, which `make dist` builds with OSGYM_RELEASE=1, name the distribution alone, as an index wants it.
"""

from __future__ import annotations

import os
import subprocess
import urllib.parse
from pathlib import Path
from typing import Any

from setuptools import build_meta
from setuptools.build_meta import (
    build_editable,
    build_sdist,
    get_requires_for_build_editable,
    get_requires_for_build_sdist,
    get_requires_for_build_wheel,
    prepare_metadata_for_build_editable,
)

__all__ = [
    "build_editable",
    "build_sdist",
    "build_wheel",
    "get_requires_for_build_editable",
    "get_requires_for_build_sdist",
    "get_requires_for_build_wheel",
    "prepare_metadata_for_build_editable",
    "prepare_metadata_for_build_wheel",
]

ROOT = Path(__file__).resolve().parents[1]
protocol = "osgym-protocol"
"""Requirement that `setup.py` puts before the others."""


def prepare_metadata_for_build_wheel(*args: Any, **kwargs: Any) -> str:
    """Write the metadata of a wheel that pip builds from this tree."""
    _find_protocol()
    return build_meta.prepare_metadata_for_build_wheel(*args, **kwargs)


def build_wheel(*args: Any, **kwargs: Any) -> str:
    """Build a wheel from this tree."""
    _find_protocol()
    return build_meta.build_wheel(*args, **kwargs)


def _find_protocol() -> None:
    """Set the requirement to the protocol of this tree, if the tree has one and this is no release."""
    global protocol
    folder = ROOT / "protocol"
    if "OSGYM_RELEASE" not in os.environ and (folder / "pyproject.toml").is_file():
        protocol = f"osgym-protocol @ {_clone_address() or folder.as_uri()}"


def _clone_address() -> str | None:
    """Return the protocol's git address where pip cloned this tree into a folder that it will remove.

    The path of that folder would stay in the metadata and end later installations. Credentials in the address
    would stay there too, so git must have them from its own configuration.
    """
    if not any(parent.name.startswith("pip-") for parent in ROOT.parents) or not (ROOT / ".git").exists():
        return None
    parts = urllib.parse.urlsplit(_git("remote", "get-url", "origin"))
    user, _, host = parts.netloc.rpartition("@")
    host = f"{user}@{host}" if user and parts.scheme == "ssh" else host
    address = parts._replace(netloc=host, path=f"{parts.path}@{_git('rev-parse', 'HEAD')}").geturl()
    return f"git+{address}#subdirectory=protocol"


def _git(*args: str) -> str:
    argv = ["git", "-C", str(ROOT), *args]
    return subprocess.run(argv, capture_output=True, text=True, check=True, timeout=30).stdout.strip()
