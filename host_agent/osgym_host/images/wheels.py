"""Python packages of the image: pinned distributions of others, the guest agent, its protocol.

The guest agent comes from its source where it is installed for development (`pip install -e`), and is copied
as it is installed where it came as a wheel. Both give the same key and, built alike, the same image.
"""

from __future__ import annotations

import errno
import hashlib
import importlib.metadata
import json
import os
import shutil
import subprocess
import sys
import tempfile
import urllib.parse
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import osgym_protocol
from osgym_host.images.definition import hash_of
from osgym_host.images.errors import BakeError, DefinitionError
from osgym_protocol.version import __version__

_TIMEOUT_S = 600.0
_FLAGS = (("CFLAGS", "-g0"), ("LDFLAGS", "-Wl,--strip-all -Wl,--build-id=none"))
"""Flags without debug information, which would name the folder of the build and cost memory."""
_DISTRIBUTION, _PACKAGE = "osgym-guest", "osgym_guest"
_SOURCE_DIGESTS = "native.sha256"
"""File of an installed guest agent with the digests of the sources of its compiled parts."""
_PROGRAMS = ("osgym-identity", "osgym-session")
_PRODUCTS = ("__pycache__", "*.so", "*.o", "*.egg-info", *_PROGRAMS, _SOURCE_DIGESTS, ".*")
"""Files that a build leaves beside the modules, and compiled ones."""
_NOT_IN_IMAGES = ("grammars", "option_groups.py")
"""Parts of the protocol that no guest needs, and whose changes must not bake images anew."""


@dataclass(frozen=True, slots=True)
class GuestAgent:
    """Guest agent for images.

    Attributes:
        package: Folder `osgym_guest`.
        source: Folder of the project that it is built from; None where it is installed as a wheel.
    """

    package: Path
    source: Path | None

    @property
    def version(self) -> str:
        """Version, which is that of all distributions here."""
        return __version__

    def key(self) -> str:
        """Return the hash of all its sources, and of the protocol it is installed with.

        The same for a source tree and for a wheel of it.
        """
        digests = {**_digests(self.package), **_digests(Path(osgym_protocol.__file__).parent)}
        if self.source is None:
            digests |= _read_digests(self.package / _SOURCE_DIGESTS)
        else:
            native = [self.source / name for name in ("pyproject.toml", "setup.py")]
            native += sorted((self.source / "native").iterdir())
            digests |= {str(path.relative_to(self.source)): _sha256(path) for path in native if path.exists()}
        text = "".join(f"{digest}  {name}\n" for name, digest in sorted(digests.items()))
        return hashlib.sha256(text.encode()).hexdigest()

    def install(self, target: Path, cache: Path) -> None:
        """Install it and the protocol into the folder `target`.

        Raises:
            BakeError: It could not be built.
        """
        if self.source is None:
            ignored = shutil.ignore_patterns("__pycache__", _SOURCE_DIGESTS)
            shutil.copytree(self.package, target / _PACKAGE, ignore=ignored)
        else:
            install_wheels([self._wheel(self.source, cache)], target)
            (target / _PACKAGE / _SOURCE_DIGESTS).unlink(missing_ok=True)
            for described in target.glob(f"{_PACKAGE}-*.dist-info"):
                shutil.rmtree(described)
        # The very modules that this host runs with.
        protocol = Path(osgym_protocol.__file__).parent
        shutil.copytree(
            protocol, target / protocol.name, ignore=shutil.ignore_patterns(*_PRODUCTS, *_NOT_IN_IMAGES)
        )

    def _wheel(self, source: Path, cache: Path) -> Path:
        kept = cache / f"guest-{self.key()[:16]}"
        with tempfile.TemporaryDirectory(prefix=".new-", dir=cache) as scratch:
            copy = Path(scratch) / "source"
            shutil.copytree(source, copy, ignore=shutil.ignore_patterns("build", "dist", *_PRODUCTS))
            isolation = ["--no-build-isolation"] if _has_setuptools() else []
            wheels = _cached_wheels(kept, [*isolation, str(copy)], "guest agent")
        if len(wheels) != 1:
            raise BakeError("guest agent", f"{len(wheels)} wheels in {kept}", hint="remove that folder")
        return wheels[0]


def find_guest_agent() -> GuestAgent:
    """Return the guest agent of the folder OSGYM_GUEST_DIR, or the installed one.

    Raises:
        DefinitionError: No agent is installed, or its digests are missing.
    """
    if configured := os.environ.get("OSGYM_GUEST_DIR"):
        return _from_source(Path(configured))
    try:
        distribution = importlib.metadata.distribution(_DISTRIBUTION)
    except importlib.metadata.PackageNotFoundError:
        hint = f"pip install {_DISTRIBUTION}, or set OSGYM_GUEST_DIR to its source"
        raise DefinitionError("the guest agent is not installed here", hint) from None
    origin = json.loads(distribution.read_text("direct_url.json") or "{}")
    if origin.get("dir_info", {}).get("editable"):
        return _from_source(Path(urllib.parse.unquote(urllib.parse.urlsplit(origin["url"]).path)))
    package = Path(str(distribution.locate_file(_PACKAGE)))
    if not (package / _SOURCE_DIGESTS).is_file():
        raise DefinitionError(f"the guest agent in {package} is incomplete", f"install {_DISTRIBUTION} again")
    return GuestAgent(package, None)


def _from_source(folder: Path) -> GuestAgent:
    if not (folder / "pyproject.toml").is_file():
        raise DefinitionError(f"the guest agent's source is not at {folder}", "set OSGYM_GUEST_DIR")
    return GuestAgent(folder / _PACKAGE, folder)


def _digests(package: Path) -> Mapping[str, str]:
    """Return the digest of each module and data file, by its path from the package's folder."""
    products = shutil.ignore_patterns(*_PRODUCTS, *_NOT_IN_IMAGES)
    found = {}
    for folder, folders, files in os.walk(package):
        folders[:] = sorted(set(folders) - products(folder, folders))
        for name in set(files) - products(folder, files):
            path = Path(folder) / name
            found[str(path.relative_to(package.parent))] = _sha256(path)
    return found


def _read_digests(path: Path) -> Mapping[str, str]:
    lines = (line.split("  ", 1) for line in path.read_text().splitlines())
    return {name: digest for digest, name in lines}


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def requirement_wheels(requirements: list[str], cache: Path) -> list[Path]:
    """Return wheels of pinned requirements, without their dependencies, from the cache if they are there.

    Raises:
        BakeError: One could not be fetched or built.
    """
    key = hash_of(*requirements)[:16]
    return _cached_wheels(cache / key, ["--use-pep517", *requirements], "Python packages")


def install_wheels(wheels: list[Path], target: Path) -> None:
    """Unpack wheels into `target` as pip does, without byte code of this machine's Python.

    Raises:
        BakeError: pip failed.
    """
    options = ["--no-deps", "--no-index", "--no-compile", "--ignore-requires-python", "--target", str(target)]
    platform = ["--implementation", "cp", "--python-version", "3.11", "--only-binary", ":all:"]
    # By name and not by path: a path would be written into the image.
    names = ["==".join(wheel.name.split("-")[:2]) for wheel in wheels]
    folders = [f"--find-links={folder}" for folder in sorted({wheel.parent for wheel in wheels})]
    _pip(["install", *options, *platform, *folders, *names], "installing Python packages")
    shutil.rmtree(target / "bin", ignore_errors=True)


def _cached_wheels(folder: Path, arguments: list[str], what: str) -> list[Path]:
    """Return the wheels in `folder`, which `pip wheel` fills if it is not there yet."""
    if not folder.is_dir():
        with tempfile.TemporaryDirectory(prefix=".new-", dir=folder.parent) as scratch:
            made = Path(scratch) / "wheels"
            _pip(["wheel", "--no-deps", "--wheel-dir", str(made), *arguments], what)
            try:
                made.rename(folder)
            except OSError as exc:  # another bake may have made the same meanwhile
                if exc.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                    raise
    return sorted(folder.glob("*.whl"))


def _pip(arguments: list[str], what: str) -> None:
    argv = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", *arguments]
    env = {**os.environ, **{name: f"{os.environ.get(name, '')} {flags}".strip() for name, flags in _FLAGS}}
    try:
        done = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False)
    except subprocess.TimeoutExpired as exc:
        raise BakeError(what, f"pip took longer than {_TIMEOUT_S:.0f} s") from exc
    if done.returncode != 0:
        raise BakeError(what, "pip failed", (done.stdout + done.stderr)[-3000:])


def _has_setuptools() -> bool:
    """Return whether wheels can be built with installed packages, without an index."""
    code = "import setuptools, sys; sys.exit(int(setuptools.__version__.split('.')[0]) < 77)"
    argv = [sys.executable, "-c", code]
    return subprocess.run(argv, capture_output=True, timeout=60, check=False).returncode == 0
