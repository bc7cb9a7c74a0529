"""The Packer templates: Packer takes them, refuses what is wrong, and the digest is the content's."""

from __future__ import annotations

import hashlib
import importlib.util
import io
import os
import re
import shutil
import subprocess
import tarfile
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from osgym_host.images.definition import ImageSource, find_images_folder
from osgym_host.images.idmap import current_idmap
from osgym_host.images.layer import LayerBake

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "images" / "packer"
SHA256 = "0123456789abcdef" * 4
GOOD: dict[str, dict[str, str]] = {
    "guest-qemu": {"disk": "base.qcow2", "checksum": f"sha256:{SHA256}", "token_file": "token"},
    "host-aws": {
        "region": "eu-central-1",
        "agent": "agent.tar",
        "agent_sha256": SHA256,
        "ssh_cidrs": '["203.0.113.7/32"]',
    },
    "host-gcp": {
        "project": "lab",
        "zone": "europe-west4-a",
        "agent": "agent.tar",
        "agent_sha256": SHA256,
    },
}

Packer = Callable[..., "subprocess.CompletedProcess[str]"]


def _run(argv: list[str], folder: Path, said: str = "") -> subprocess.CompletedProcess[str]:
    """Packer without an account, a release check or a cache of this machine."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "GOOGLE_"))}
    env = {**kept, "CHECKPOINT_DISABLE": "1", "PACKER_CACHE_DIR": str(folder / "cache")}
    return subprocess.run(
        ["packer", *argv],
        cwd=folder,
        env=env,
        input=said,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.fixture
def packer(tmp_path: Path) -> Packer:
    """Runs a command of Packer's with a template and variables, in a folder with an `agent.tar`."""
    if shutil.which("packer") is None:
        pytest.skip("missing: packer")
    version = _run(["version"], tmp_path).stdout.split()[1].removeprefix("v")
    if tuple(map(int, version.split(".")[:2])) >= (1, 7):
        installed = _run(["plugins", "installed"], tmp_path).stdout
        if not all(name in installed for name in ("qemu", "amazon", "googlecompute")):
            pytest.skip("missing: Packer's plugins (packer init images/packer/plugins.pkr.hcl)")
    (tmp_path / "agent.tar").write_bytes(b"agent")

    def run(
        command: str, template: str, said: str = "", **variables: str
    ) -> subprocess.CompletedProcess[str]:
        options = [f"-var={name}={value}" for name, value in variables.items()]
        return _run([command, *options, str(FOLDER / f"{template}.pkr.hcl")], tmp_path, said)

    return run


@pytest.mark.parametrize("template", GOOD)
def test_packer_takes_each_template(packer: Packer, template: str) -> None:
    """Each by itself, with nothing but the variables that it demands."""
    done = packer("validate", template, **GOOD[template])
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_commands_of_the_page_are_taken_from_where_it_says(packer: Packer, tmp_path: Path) -> None:
    """Each `packer build` of README.md as it stands there, in the repository's folder, with relative paths;
    but it is validated only, and what it leaves out is filled in."""
    page = (FOLDER / "README.md").read_text("utf-8").replace("\\\n", " ")
    commands = re.findall(r"^packer build -var .*$", page, re.MULTILINE)
    assert [re.findall(r"images/packer/([\w-]+)\.pkr\.hcl", line) for line in commands] == [
        [name] for name in GOOD
    ]
    for name in ("images", "infra/bootstrap"):
        (tmp_path / "tree" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "tree" / name).symlink_to(ROOT / name)
    made = {"out/fleet/agent-0123.tar": b"agent", "base.qcow2": b"disk", "token": b"ab" * 16}
    for path, data in made.items():
        (tmp_path / "tree" / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "tree" / path).write_bytes(data)
    for line in commands:
        filled = line.replace("agent-….tar", "agent-0123.tar").replace(
            "agent_sha256=…", f"agent_sha256={SHA256}"
        )
        script = f"disk=base.qcow2; {filled.replace('packer build', 'packer validate')}"
        env = {**os.environ, "CHECKPOINT_DISABLE": "1", "PACKER_CACHE_DIR": str(tmp_path / "cache")}
        done = subprocess.run(
            ["bash", "-c", script], cwd=tmp_path / "tree", env=env, capture_output=True, text=True,
            timeout=60, check=False,
        )  # fmt: skip
        assert done.returncode == 0, script + done.stdout + done.stderr


@pytest.mark.parametrize(
    ("template", "wrong", "why"),
    [
        ("guest-qemu", {"accelerator": "hvf"}, "kvm, or tcg"),
        ("guest-qemu", {"checksum": "md5:0123"}, "64 hexadecimal digits"),
        ("guest-qemu", {"memory_mib": "much"}, "number"),
        ("guest-qemu", {"nothing": "1"}, "nothing"),
        ("host-aws", {"ssh_cidrs": '["10.0.0.0/8", "0.0.0.0/0"]'}, "the whole world is refused"),
        ("host-aws", {"ssh_cidrs": "[]"}, "Name your own addresses"),
        ("host-aws", {"agent": "absent.tar"}, "absent.tar"),
        ("host-aws", {"agent_sha256": "0123"}, "64 hexadecimal digits"),
        ("host-aws", {"tags": "[1]"}, "tags"),
        ("host-gcp", {"agent_sha256": "0123"}, "64 hexadecimal digits"),
        ("host-gcp", {"zone": ""}, "zone"),
        ("host-gcp", {"labels": "[1]"}, "labels"),
    ],
)
def test_what_is_wrong_is_named(packer: Packer, template: str, wrong: dict[str, str], why: str) -> None:
    """Before anything is started, let alone paid for."""
    done = packer("validate", template, **{**GOOD[template], **wrong})
    assert done.returncode != 0
    assert why in " ".join((done.stdout + done.stderr).split())


@pytest.mark.parametrize("template", GOOD)
def test_what_is_missing_is_named(packer: Packer, template: str) -> None:
    """Nothing of what a template demands has a value of its own."""
    done = packer("validate", template)
    assert done.returncode != 0
    for name in GOOD[template]:
        assert f'Unset variable "{name}"' in done.stdout + done.stderr


@pytest.mark.parametrize("template", ["host-aws", "host-gcp"])
def test_a_hosts_digest_is_that_of_its_content(packer: Packer, template: str) -> None:
    """As the README has it: the bootstrap's files by name, the script around them, the agent's SHA-256."""
    bootstrap = (path for path in (ROOT / "infra" / "bootstrap").iterdir() if path.is_file())
    parts = [path.read_text() for path in sorted(bootstrap)]
    parts += [(FOLDER / "host-bake.sh").read_text(), SHA256]
    digest = hashlib.sha256("\n".join(parts).encode()).hexdigest()[:40]
    assert packer("console", template, "local.digest", **GOOD[template]).stdout.strip() == digest
    assert (
        packer("console", template, "local.name", **GOOD[template]).stdout.strip() == f"osgym-host-{digest}"
    )


def test_every_builder_has_its_plugin() -> None:
    """`packer init` brings what the templates use."""
    plugins = (FOLDER / "plugins.pkr.hcl").read_text()
    for template in GOOD:
        text = (FOLDER / f"{template}.pkr.hcl").read_text()
        assert "required_plugins" not in text
        builder = text.split('\nsource "')[1].split('"')[0]
        assert f'hashicorp/{builder.removesuffix("-ebs")}"' in plugins


def test_the_shell_is_sound() -> None:
    """shellcheck finds nothing, not even style."""
    if shutil.which("shellcheck") is None:
        pytest.skip("missing: shellcheck")
    argv = ["shellcheck", "-S", "style", str(FOLDER / "host-bake.sh")]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def _provision() -> ModuleType:
    spec = importlib.util.spec_from_file_location("packer_provision", FOLDER / "provision.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_what_goes_into_the_guest_belongs_to_whom_it_should(tmp_path: Path) -> None:
    """Files are root's but for those in the user's home; programs can be run; links stay links."""
    for name in ("etc/team.conf", "home/user/Desktop/notes.txt", "usr/local/bin/tool"):
        path = tmp_path / "files" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    (tmp_path / "files/usr/local/bin/tool").chmod(0o700)
    (tmp_path / "files/etc/link").symlink_to("/etc/hostname")
    script = tmp_path / "setup"
    script.write_text("#!/bin/sh\n")
    made = _provision().archive(
        tmp_path / "files", {"osgym-bake/scripts/00-setup": script}, "/home/user", 1000
    )
    with tarfile.open(fileobj=io.BytesIO(made)) as tar:
        found = {m.name: (m.uid, m.mode, m.linkname) for m in tar.getmembers()}
    assert found["etc/team.conf"] == (0, 0o644, "")
    assert found["home/user"][0] == 0
    assert found["home/user/Desktop/notes.txt"] == (1000, 0o644, "")
    assert found["usr/local/bin/tool"] == (0, 0o755, "")
    assert found["etc/link"][2] == "/etc/hostname"
    assert found["osgym-bake/scripts/00-setup"] == (0, 0o755, "")


def test_programs_are_told_what_the_local_bake_tells() -> None:
    """The same names and values, but for the flavor."""
    source = ImageSource(find_images_folder())
    wanted = LayerBake(source.definition, "small", Path(), "", current_idmap()).environment()
    del wanted["OSGYM_FLAVOR"]
    given = _provision().environment(source.definition.model_dump())
    assert {name: given.get(name) for name in wanted} == wanted
