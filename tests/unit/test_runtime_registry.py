"""A runtime is a package and a line in the registry; setting, command line, doctor and factory follow it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from pydantic import ValidationError

import osgym_host
from osgym_host.doctor.examination import CHECKS, NEEDED
from osgym_host.runtime_factory import make_runtime, runtime_kind
from osgym_host.runtime_registry import runtime_names
from osgym_host.runtimes.kind import RuntimeKind
from osgym_host.settings import Settings
from osgym_infra.config.keys import KEYS


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
        "print([name for name in ('docker', 'qemu.qmp', 'osgym_host.runtimes.qemu') if name in sys.modules])"
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
