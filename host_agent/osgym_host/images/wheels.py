"""Python distributions for the image: built on this machine, installed without its network."""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

from osgym_host.images.definition import tree_hash
from osgym_host.images.errors import BakeError, DefinitionError

_TIMEOUT_S = 600.0
_CFLAGS = "-g0"
_LDFLAGS = "-Wl,--strip-all -Wl,--build-id=none"
_HELPER = "osgym-identity"
"""A program that a build leaves beside the guest agent's modules."""


def find_guest_folder(images: Path) -> Path:
    """The guest agent's source: OSGYM_GUEST_DIR, or `guest_agent/` beside the image definition.

    Raises:
        DefinitionError: It is not there.
    """
    configured = os.environ.get("OSGYM_GUEST_DIR")
    folder = Path(configured) if configured else images.parent / "guest_agent"
    if not (folder / "pyproject.toml").is_file():
        raise DefinitionError(f"the guest agent's source is not at {folder}", "set OSGYM_GUEST_DIR")
    return folder


def guest_key(folder: Path) -> str:
    """Hash of the guest agent's source and of how it is built, without what a build leaves there."""
    paths = [
        path
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not _is_product(path.relative_to(folder))
    ]
    value = hashlib.sha256(f"{_CFLAGS} {_LDFLAGS}\n".encode())
    for path in paths:
        value.update(f"{path.relative_to(folder)}\n{tree_hash([path])}\n".encode())
    return value.hexdigest()


def guest_version(folder: Path) -> str:
    """The version in the guest agent's pyproject.toml."""
    with (folder / "pyproject.toml").open("rb") as file:
        version: str = tomllib.load(file)["project"]["version"]
    return version


def requirement_wheels(requirements: list[str], cache: Path) -> list[Path]:
    """Wheels of pinned requirements (without their dependencies), from the cache when they are there."""
    key = hashlib.sha256("\n".join(requirements).encode()).hexdigest()[:16]
    folder = cache / key
    if not folder.is_dir():
        with tempfile.TemporaryDirectory(prefix=".new-", dir=cache) as scratch:
            made = Path(scratch) / "wheels"
            _pip(
                ["wheel", "--use-pep517", "--no-deps", "--wheel-dir", str(made), *requirements],
                "Python packages",
            )
            _publish(made, folder)
    return sorted(folder.glob("*.whl"))


def guest_wheel(folder: Path, cache: Path) -> Path:
    """The guest agent's wheel, built anew when its source changed."""
    target = cache / f"guest-{guest_key(folder)[:16]}"
    if not target.is_dir():
        with tempfile.TemporaryDirectory(prefix=".new-", dir=cache) as scratch:
            source = Path(scratch) / "source"
            shutil.copytree(folder, source, ignore=_ignore_products)
            made = Path(scratch) / "wheels"
            isolation = ["--no-build-isolation"] if _has_setuptools() else []
            _pip(["wheel", "--no-deps", *isolation, "--wheel-dir", str(made), str(source)], "guest agent")
            _publish(made, target)
    wheels = list(target.glob("*.whl"))
    if len(wheels) != 1:
        raise BakeError("guest agent", f"{len(wheels)} wheels in {target}", hint="remove that folder")
    return wheels[0]


def _publish(made: Path, folder: Path) -> None:
    """Give what was made its name; another bake may have made the same meanwhile."""
    try:
        made.rename(folder)
    except OSError as exc:
        if exc.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise


def install_wheels(wheels: list[Path], target: Path) -> None:
    """Unpack wheels into `target` as pip does, without byte code of this machine's Python."""
    options = ["--no-deps", "--no-index", "--no-compile", "--ignore-requires-python", "--target", str(target)]
    platform = ["--implementation", "cp", "--python-version", "3.11", "--only-binary", ":all:"]
    # By name and not by path: a path would be written into the image.
    names = ["==".join(wheel.name.split("-")[:2]) for wheel in wheels]
    folders = [f"--find-links={folder}" for folder in sorted({wheel.parent for wheel in wheels})]
    _pip(["install", *options, *platform, *folders, *names], "installing Python packages")
    shutil.rmtree(target / "bin", ignore_errors=True)


def _pip(arguments: list[str], what: str) -> None:
    argv = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", *arguments]
    try:
        done = subprocess.run(
            argv, env=_build_env(), capture_output=True, text=True, timeout=_TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired as exc:
        raise BakeError(what, f"pip took longer than {_TIMEOUT_S:.0f} s") from exc
    if done.returncode != 0:
        raise BakeError(what, "pip failed", (done.stdout + done.stderr)[-3000:])


def _build_env() -> dict[str, str]:
    """Compilers leave no debug information: it names the folder of the build, and costs memory."""
    env = dict(os.environ)
    env["CFLAGS"] = f"{env.get('CFLAGS', '')} {_CFLAGS}".strip()
    env["LDFLAGS"] = f"{env.get('LDFLAGS', '')} {_LDFLAGS}".strip()
    return env


def _has_setuptools() -> bool:
    code = "import setuptools, wheel, sys; sys.exit(int(setuptools.__version__.split('.')[0]) < 70)"
    return (
        subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=60, check=False).returncode
        == 0
    )


def _is_product(path: Path) -> bool:
    parts = path.parts
    return (
        "__pycache__" in parts
        or parts[0] in ("build", "dist")
        or any(part.endswith(".egg-info") or part.startswith(".") for part in parts)
        or path.suffix in (".pyc", ".o", ".so")
        or path.name == _HELPER
    )


def _ignore_products(folder: str, names: list[str]) -> set[str]:
    del folder
    return {
        name
        for name in names
        if name in ("build", "dist", "__pycache__", _HELPER)
        or name.endswith((".egg-info", ".so", ".o"))
        or name[0] == "."
    }
