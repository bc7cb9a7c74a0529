"""The SDK installed by one command into a clean environment: from a checkout, a git address, from dist/.

Packages of others are those of the environment that runs this. The protocol is on no index.
"""

from __future__ import annotations

import functools
import http.server
import json
import os
import shutil
import subprocess
import sys
import venv
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support import ROOT
from tests.support.local_http import serving_http

from osgym_infra.archives.pack import build_wheels
from osgym_protocol.version import __version__

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def others(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with every installed package of others, and none of ours."""
    folder = tmp_path_factory.mktemp("others")
    for site in (Path(path) for path in sys.path if path.endswith("site-packages")):
        for entry in site.iterdir():
            ours = entry.name.startswith(("osgym", "__editable__")) or entry.suffix == ".pth"
            if not ours and not (folder / entry.name).exists():
                (folder / entry.name).symlink_to(entry)
    return folder


@pytest.fixture
def python(tmp_path: Path, others: Path) -> Path:
    """The interpreter of a new environment."""
    folder = tmp_path / "environment"
    venv.create(folder, with_pip=False)
    (site,) = folder.glob("lib/python3*/site-packages")
    (site / "others.pth").write_text(f"{others}\n")
    return folder / "bin" / "python"


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The two distributions as a checkout has them."""
    folder = tmp_path_factory.mktemp("checkout")
    products = shutil.ignore_patterns("build", "*.egg-info", "__pycache__")
    for name in ("protocol", "sdk"):
        shutil.copytree(ROOT / name, folder / name, ignore=products)
    return folder


class QuietHandler(http.server.SimpleHTTPRequestHandler):
    """Serves files and logs nothing."""

    def log_message(self, *_: object) -> None:
        """Drop the line."""


@pytest.fixture(scope="module")
def repository(checkout: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    """The address of a git repository that holds the checkout, and its commit."""
    folder = tmp_path_factory.mktemp("git")
    work, bare = folder / "work", folder / "repository.git"
    shutil.copytree(checkout, work)
    identity = ("-c", "user.name=t", "-c", "user.email=t@example.com")
    git("init", "-q", at=work)
    git("add", ".", at=work)
    git(*identity, "commit", "-q", "-m", "All", at=work)
    git("clone", "-q", "--bare", str(work), str(bare), at=folder)
    git("update-server-info", at=bare)
    handler = functools.partial(QuietHandler, directory=str(folder))
    with serving_http(handler) as url:
        yield f"git+{url}/repository.git", git("rev-parse", "HEAD", at=work)


def git(*argv: str, at: Path) -> str:
    """Run git in a folder; return what it printed."""
    done = subprocess.run(["git", *argv], cwd=at, capture_output=True, text=True, check=True, timeout=60)
    return done.stdout.strip()


def install(python: Path, *what: str) -> None:
    """`pip install` into that environment, but with this one's pip."""
    argv = [sys.executable, "-m", "pip", "--python", str(python), "install", "-q"]
    argv += ["--disable-pip-version-check"]
    env = {**os.environ, "no_proxy": "127.0.0.1"}
    done = subprocess.run([*argv, *what], env=env, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def check(python: Path) -> list[str]:
    """Import both distributions, ask pip whether all fit; return what the SDK requires."""
    code = (
        "import importlib.metadata as m, json, osgym_protocol, osgym_sdk;"
        "print(json.dumps([[osgym_sdk.__file__, osgym_protocol.__file__], m.version('osgym-protocol'),"
        "[r for r in m.requires('osgym-sdk') if 'extra' not in r]]))"
    )
    argv = [str(python), "-I", "-c", code]
    done = subprocess.run(argv, capture_output=True, text=True, check=True, timeout=60, cwd=python.parent)
    files, version, required = json.loads(done.stdout)
    assert all(Path(file).is_relative_to(python.parents[1]) for file in files)
    assert version == __version__
    requirements: list[str] = required
    return requirements


@pytest.mark.parametrize("named", [("sdk",), ("protocol", "sdk")])
def test_from_a_checkout(python: Path, checkout: Path, named: tuple[str, ...]) -> None:
    """`pip install ./sdk`; who names the protocol too gets the same."""
    # Environments to build in take half of the time, and the first case has shown that they can be made.
    options = ["--no-build-isolation"] if len(named) > 1 else []
    install(python, *options, *(str(checkout / name) for name in named))
    assert f"osgym-protocol @ {(checkout / 'protocol').as_uri()}" in check(python)


def test_from_a_git_address(python: Path, repository: tuple[str, str]) -> None:
    """The protocol is that of the same commit, and a later installation that needs the SDK finds it again."""
    address, commit = repository
    install(python, f"osgym-sdk[dns] @ {address}#subdirectory=sdk")
    assert f"osgym-protocol @ {address}@{commit}#subdirectory=protocol" in check(python)
    install(python, "osgym-sdk[dns]")


def test_from_dist(python: Path, tmp_path: Path) -> None:
    """Releases, as `make dist` builds them, require the protocol by its name from wherever the wheels are."""
    build_wheels(ROOT, ("protocol", "sdk"), tmp_path / "dist")
    install(python, "--no-index", "--find-links", str(tmp_path / "dist"), "osgym-sdk")
    assert "osgym-protocol" in check(python)
