"""The wheels of `make dist`: the same bytes twice, and all that a machine needs which has nothing else."""

from __future__ import annotations

import email
import importlib.util
import os
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

from osgym_host.images.store import Image
from osgym_host.images.wheels import find_guest_agent
from osgym_infra.archives.pack import sha256_of

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.timeout(600)


def dist(target: Path) -> Path:
    """Build the wheels into a folder."""
    subprocess.run([sys.executable, ROOT / "scripts" / "dist.py", target], check=True, timeout=300)
    return target


def files_of(folder: Path) -> dict[str, bytes]:
    """Return what a tree holds, without byte code."""
    paths = [path for path in folder.rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths}


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the wheels."""
    return dist(tmp_path_factory.mktemp("dist"))


@pytest.fixture(scope="module")
def installed(wheels: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of an environment that has the wheels and what they depend on, and no source tree.

    What they depend on is that of the environment which runs this: its own editable distributions are not
    seen there, since a .pth file in a folder that a .pth file names is not read.
    """
    folder = tmp_path_factory.mktemp("clean")
    venv.create(folder, with_pip=False)
    (site,) = folder.glob("lib/python3*/site-packages")
    others = [path for path in sys.path if path.endswith(("site-packages", "dist-packages"))]
    (site / "dependencies.pth").write_text("".join(f"{path}\n" for path in others))
    argv = [sys.executable, "-m", "pip", "--python", folder / "bin" / "python", "install", "-q"]
    argv += ["--disable-pip-version-check", "--no-index", "--no-deps", "--ignore-installed"]
    subprocess.run([*argv, *wheels.glob("*.whl")], check=True, timeout=120)
    return folder


def run(installed: Path, *argv: str, timeout_s: float = 120) -> str:
    """Run a program of the clean environment, in a folder of its own; return what it printed."""
    env = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    done = subprocess.run(
        [installed / "bin" / argv[0], *argv[1:]],
        cwd=installed,
        env=env,
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_same_source_gives_the_same_wheels(wheels: Path, tmp_path: Path) -> None:
    """Byte for byte, and all with one version."""
    again = dist(tmp_path / "again")
    digests = {path.name: sha256_of(path) for path in wheels.iterdir()}
    assert digests == {path.name: sha256_of(path) for path in again.iterdir()}
    assert sorted(name.split("-")[0] for name in digests) == [
        "osgym_certify", "osgym_cli", "osgym_guest", "osgym_host", "osgym_infra", "osgym_osworld",
        "osgym_protocol", "osgym_qemu", "osgym_sdk", "osgym_tasks",
    ]  # fmt: skip
    assert {name.split("-")[1] for name in digests} == {find_guest_agent().version}


def test_each_wheel_has_the_licence_and_what_an_index_shows(wheels: Path) -> None:
    """Its text and its name, a description, and no requirement that is an address."""
    for wheel in wheels.iterdir():
        with zipfile.ZipFile(wheel) as archive:
            (described,) = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
            metadata = email.message_from_bytes(archive.read(described))
            licence = archive.read(f"{described.removesuffix('METADATA')}licenses/LICENSE")
        assert licence == (ROOT / "LICENSE").read_bytes(), wheel.name
        assert metadata["License-Expression"] == "Apache-2.0", wheel.name
        assert metadata["Summary"] and metadata.get_payload() and metadata.get_all("Classifier"), wheel.name
        assert metadata["Project-URL"] == "Paper, https://arxiv.org/abs/2511.11672", wheel.name
        assert [text for text in metadata.get_all("Requires-Dist", ()) if "@" in text] == [], wheel.name


def test_the_hosts_wheel_has_the_images_and_the_tasks(wheels: Path) -> None:
    """Every file of both folders but pictures for readers, programs still executable."""
    listed = subprocess.run(["git", "ls-files", "images", "tasks"], cwd=ROOT, capture_output=True, text=True)
    if listed.returncode != 0:
        pytest.skip("missing: the git repository")
    (wheel,) = wheels.glob("osgym_host-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        prefix = "osgym_host/data/"
        found = {
            entry.filename.removeprefix(prefix): bool(entry.external_attr >> 16 & 0o100)
            for entry in archive.infolist()
            if entry.filename.startswith(prefix)
        }
    assert found == {name: os.access(ROOT / name, os.X_OK) for name in listed.stdout.splitlines()}


def test_nothing_comes_from_a_source_tree(installed: Path) -> None:
    """Else what follows would show nothing."""
    parts = "protocol", "sdk", "guest", "host", "qemu", "cli", "infra", "tasks", "certify"
    names = " ".join(f"osgym_{part}" for part in parts)
    code = f"import importlib; [print(importlib.import_module(n).__file__) for n in '{names}'.split()]"
    found = [Path(line) for line in run(installed, "python", "-c", code).splitlines()]
    assert len(found) == len(names.split())
    assert [path for path in found if not path.is_relative_to(installed)] == []


def test_osworlds_provider_is_a_wheel_of_its_own(wheels: Path, installed: Path) -> None:
    """The SDK comes without it; imported, it takes the place of Docker in desktop-env."""
    (sdk,) = wheels.glob("osgym_sdk-*.whl")
    with zipfile.ZipFile(sdk) as archive:
        assert {name.split("/")[0] for name in archive.namelist() if "osworld" in name} == set()
    if importlib.util.find_spec("desktop_env") is None:
        pytest.skip("missing: desktop-env")
    code = (
        "import osgym_osworld.harness, desktop_env.providers as theirs\n"
        "print(osgym_osworld.__file__, theirs.create_vm_manager_and_provider.func.__module__)\n"
    )
    path, module = run(installed, "python", "-c", code).split()
    assert Path(path).is_relative_to(installed)
    assert module == "osgym_osworld.harness"


def test_an_installed_guest_agent_is_the_one_of_its_source(installed: Path, tmp_path: Path) -> None:
    """The same key, and the same files for the image: an image is not baked twice."""
    here = find_guest_agent()
    if here.source is None:
        pytest.skip("missing: the source of the guest agent")
    code = (
        "import sys; from pathlib import Path; from osgym_host.images.wheels import find_guest_agent\n"
        "agent = find_guest_agent(); assert agent.source is None\n"
        "agent.install(Path(sys.argv[1]), Path(sys.argv[2])); print(agent.key())"
    )
    folders = [tmp_path / name for name in ("copied", "built", "cache")]
    for folder in folders:
        folder.mkdir()
    copied, built, cache = folders
    assert run(installed, "python", "-c", code, str(copied), str(cache)).strip() == here.key()
    here.install(built, cache)
    assert files_of(copied) == files_of(built)
    for name in ("osgym_guest/osgym-identity", "osgym_guest/_native.abi3.so"):
        assert os.access(copied / name, os.X_OK) == os.access(built / name, os.X_OK)


def test_the_definition_does_not_depend_on_where_it_is(installed: Path) -> None:
    """Of the image and, with `--vm`, of its disk and snapshots."""
    for options in ([], ["--vm"]):
        argv = ["image", "definition", "--flavor", "small", *options]
        here = subprocess.run(
            [sys.executable, "-m", "osgym_host", *argv],
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        )
        assert run(installed, "osgym", *argv) == here.stdout


@pytest.mark.desktop
def test_the_demo_runs_with_the_wheels_alone(installed: Path, small_image: Image) -> None:
    """On the image that is there; in a folder where no source tree is found."""
    out = run(
        installed,
        "osgym",
        "demo",
        "--flavor",
        "small",
        "--replicas",
        "2",
        "--only",
        "mousepad",
        timeout_s=300,
    )
    assert "trajectories per minute" in out
    (folder,) = (installed / "out").iterdir()
    assert (folder / "contact-sheet.png").is_file()
