"""What the distributions share is written once; their wheels are built and tried in an integration test."""

from __future__ import annotations

import importlib.metadata
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

import osgym_guest
import osgym_protocol
import osgym_sdk
from osgym_host.images import wheels
from osgym_host.images.definition import find_images_folder
from osgym_host.tasks.shipped import default_folder
from osgym_protocol.version import __version__

ROOT = Path(__file__).parents[2]
DISTRIBUTIONS = sorted(
    path.parent.relative_to(ROOT)
    for pattern in ("*", "tasks/*")
    for path in ROOT.glob(f"{pattern}/pyproject.toml")
)


@pytest.mark.parametrize("folder", DISTRIBUTIONS, ids=str)
def test_every_distribution_has_the_one_version(folder: Path) -> None:
    """By a link: a copy would stay behind."""
    with (ROOT / folder / "pyproject.toml").open("rb") as file:
        described = tomllib.load(file)
    assert "version" in described["project"]["dynamic"]
    assert importlib.metadata.version(described["project"]["name"]) == __version__
    if folder.name != "protocol":
        assert described["tool"]["setuptools"]["dynamic"]["version"] == {"attr": "_version.__version__"}
        link = ROOT / folder / "_version.py"
        assert link.is_symlink() and link.resolve() == ROOT / "protocol/osgym_protocol/version.py"


def test_programs_say_the_same_version() -> None:
    """The SDK's and the guest agent's."""
    assert osgym_sdk.__version__ == osgym_guest.__version__ == __version__


def test_the_hosts_data_are_the_folders_of_the_repository() -> None:
    """Links, too: what is edited there is what is baked and run."""
    assert find_images_folder().resolve() == ROOT / "images"
    assert default_folder().resolve() == ROOT / "tasks"


def test_no_guest_has_the_grammars() -> None:
    """Reading models' outputs is for clients and hosts: changing it bakes no image, and costs no guest."""
    digests = wheels._digests(Path(osgym_protocol.__file__).parent)
    assert digests and not [name for name in digests if "grammars" in name]
    code = "import sys, osgym_guest.app; print([name for name in sys.modules if 'grammars' in name])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "[]", done.stderr


def test_a_citation_names_this_version() -> None:
    """CITATION.cff has a copy, since tools read it from the file."""
    described = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert described["version"] == __version__
    assert described["license"] == "Apache-2.0"


def test_ci_calls_its_script_and_nothing_else() -> None:
    """What a runner does is what anybody can do on a machine of their own."""
    (job,) = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text())["jobs"].values()
    assert [step["run"] for step in job["steps"] if "run" in step] == ["sudo .ci/run"]


def test_hooks_fetch_nothing() -> None:
    """They are the tools of the development environment."""
    (local,) = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"]
    assert local["repo"] == "local"
    assert {hook["entry"].split()[0] for hook in local["hooks"]} == {".venv/bin/ruff", ".venv/bin/mypy"}
