"""A runtime is a package and a line in the registry; setting, command line, doctor and factory follow it."""

from __future__ import annotations

import importlib.metadata
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner
from pydantic import ValidationError

import osgym_host
from osgym_host.cli.image import image
from osgym_host.cli.serve import serve
from osgym_host.doctor.examination import CHECKS, NEEDED
from osgym_host.runtime_factory import make_runtime, runtime_kind
from osgym_host.runtime_registry import runtime_names
from osgym_host.runtimes.kind import RuntimeKind
from osgym_host.settings import Settings, SettingsError, load
from osgym_infra.config.keys import KEYS
from osgym_protocol import plugins


def test_the_fleet_knows_every_runtime() -> None:
    """Planner and fleet read the same registry."""
    for name in runtime_names():
        assert KEYS["runtime"].read("runtime", name) == name


@pytest.mark.parametrize("name", runtime_names())
def test_a_registered_runtime_has_what_the_host_asks_for(name: str, tmp_path: Path) -> None:
    """It makes a runtime of its name from default settings, and leaves nothing by being made."""
    assert isinstance(runtime_kind(name), RuntimeKind)
    assert make_runtime(Settings(runtime=name, data_dir=tmp_path)).name == name
    assert not runtime_kind(name).has_leftovers(tmp_path / "run/default")
    assert list(tmp_path.iterdir()) == []


def test_only_registered_runtimes_are_settings() -> None:
    """The message names those there are."""
    with pytest.raises(ValidationError) as refused:
        Settings(runtime="docker")
    assert all(repr(name) in str(refused.value) for name in runtime_names())


@pytest.fixture
def without_qemu(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The distribution osgym-qemu is not installed."""
    installed = importlib.metadata.entry_points

    def others(*, group: str) -> list[importlib.metadata.EntryPoint]:
        return [one for one in installed(group=group) if one.dist is None or one.dist.name != "osgym-qemu"]

    monkeypatch.setattr(importlib.metadata, "entry_points", others)
    plugins._entries.cache_clear()
    yield
    plugins._entries.cache_clear()


@pytest.mark.parametrize(
    ("environment", "flags"),
    [
        ({}, {"runtime": "qemu"}),
        ({"OSGYM_RUNTIME": "qemu"}, {}),
        ({}, {"qemu.parked": "2"}),
        ({"OSGYM_QEMU_PARKED": "2"}, {}),
        ({}, {"parked": "2"}),
    ],
)
def test_a_host_without_virtual_machines_names_what_brings_them(
    without_qemu: None, environment: dict[str, str], flags: dict[str, str]
) -> None:
    """The runtime and its settings, from each source."""
    assert runtime_names() == ("local",)
    with pytest.raises(SettingsError, match=r"the runtime 'qemu' is not installed.*install osgym-qemu"):
        load(None, environment, flags)


def test_a_file_with_settings_of_a_missing_runtime_names_its_distribution(
    without_qemu: None, tmp_path: Path
) -> None:
    file = tmp_path / "config.yaml"
    file.write_text("qemu:\n  parked: 3\n")
    with pytest.raises(SettingsError, match="the runtime 'qemu' is not installed; install osgym-qemu"):
        load(file, {}, {})


def test_the_command_that_serves_names_the_distribution_of_a_missing_runtime(without_qemu: None) -> None:
    done = CliRunner().invoke(serve, ["--runtime", "qemu"])
    assert done.exit_code == 2
    assert "the runtime 'qemu' is not installed: install osgym-qemu" in done.output


@pytest.mark.parametrize(
    ("words", "status"),
    [
        (["build", "--format", "disk"], 2),
        (["definition", "--flavor", "small", "--vm"], 1),
        (["inspect", "full@desktop"], 1),
        (["rm", "--disk", "full"], 1),
        (["snapshot", "full"], 2),
    ],
)
def test_commands_of_images_work_without_virtual_machines(
    without_qemu: None, words: list[str], status: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that need them say what to install, or are not there; nothing is baked."""
    monkeypatch.setenv("OSGYM_DATA_DIR", str(tmp_path))
    assert CliRunner().invoke(image, ["ls"]).exit_code == 0
    done = CliRunner().invoke(image, words)
    assert done.exit_code == status
    assert ("No such command 'snapshot'" if words[0] == "snapshot" else "install osgym-qemu") in done.output
    assert list(tmp_path.iterdir()) == []


def test_the_doctor_asks_for_every_runtime() -> None:
    """Rows of the default runtime decide whether this machine can run replicas."""
    names = [name for name, _ in CHECKS]
    assert len(names) == len(set(names))
    assert {"subordinate ids", "local runtime"} == NEEDED
    assert {"docker", "egress", "kvm"} <= set(names)


def test_a_runtime_that_is_not_asked_for_is_not_imported() -> None:
    """The local runtime needs no Docker SDK and no QMP."""
    code = (
        "import sys; from osgym_host.runtime_factory import runtime_kind; runtime_kind('local');"
        "print([name for name in ('docker', 'qemu.qmp', 'osgym_qemu') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_nothing_tells_runtimes_apart_by_name() -> None:
    """But for the packages themselves."""
    host = Path(osgym_host.__file__).parent
    for path in host.rglob("*.py"):
        if path.is_relative_to(host / "runtimes") or path.name == "runtime_registry.py":
            continue
        text = path.read_text()
        for name in runtime_names():
            assert f'runtime == "{name}"' not in text, path
            assert f'runtime != "{name}"' not in text, path
