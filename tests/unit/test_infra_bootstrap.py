"""The bootstrap: that its shell is sound, and what it writes. Integration tests run the whole."""

from __future__ import annotations

import base64
import hashlib
import itertools
import json
import os
import pwd
import shutil
import subprocess
from pathlib import Path

import pytest
from tests.support.fleet_configs import SSH

from osgym_host.settings import load as load_settings
from osgym_infra.catalogue.rows import Catalogue
from osgym_infra.config.parse import parse
from osgym_infra.errors import BadInput
from osgym_infra.fleet.blueprint import draw
from osgym_infra.fleet.boot import (
    MOST_USER_DATA_BYTES,
    BootPlace,
    FetchedArchives,
    ec2_user_data,
    environment,
    user_data,
)
from osgym_infra.fleet.bootstrap import bootstrap_files
from osgym_infra.workloads.profile import load as load_profile

FOLDER = Path(__file__).resolve().parents[2] / "infra" / "bootstrap"
WILL_NOT_PASS = 3
SHELL = "\n".join(path.read_text() for path in sorted(FOLDER.glob("*.sh")))
"""All of the bootstrap's shell."""


def test_the_shell_is_sound() -> None:
    """shellcheck finds nothing, not even style."""
    if shutil.which("shellcheck") is None:
        pytest.skip("missing: shellcheck")
    done = subprocess.run(
        ["shellcheck", "-x", "-P", "SCRIPTDIR", "-S", "style", str(FOLDER / "bootstrap.sh")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout


def test_without_a_command_it_says_what_it_can() -> None:
    """Usage and exit code 2; nothing is touched."""
    done = subprocess.run(["bash", str(FOLDER / "bootstrap.sh")], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "bootstrap.sh up" in done.stdout


def test_every_kernel_limit_has_its_reason() -> None:
    """A comment above each group of settings, and the two that the paper names are there."""
    block = SHELL.split("<<'CONF'\n")[1].split("\nCONF")[0].splitlines()
    assert "fs.aio-max-nr = 1048576" in block
    assert "fs.inotify.max_user_instances = 8192" in block
    for above, line in itertools.pairwise(block):
        name = line.split(" ")[0]
        assert line.startswith("#") or above.startswith("#") or above.split(".")[0] == name.split(".")[0]


def _functions(*names: str) -> str:
    """Functions of the bootstrap, as they stand there."""
    found = {name: SHELL.split(f"\n{name}() {{\n", 1)[1].split("\n}\n", 1)[0] for name in names}
    return "".join(f"{name}() {{\n{body}\n}}\n" for name, body in found.items())


def _notices(tmp_path: Path, notices: str) -> tuple[str, str, str]:
    """What the bootstrap makes of the setting: the agent's, whether something changed, the unit."""
    script = _functions("place", "notices_of_agent", "remove_notices", "write_notices")
    script += "notices_of_agent; if write_notices; then echo changed; else echo ok; fi"
    environment = {**os.environ, "OSGYM_NOTICES": notices, "units": str(tmp_path), "opt": "/opt/osgym"}
    done = subprocess.run(
        ["bash", "-eu", "-c", script],
        env={**environment, "notice": "/run/osgym-notices/notice"},
        capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    unit = tmp_path / "osgym-notices.service"
    agent, changed = done.stdout.split()
    return agent, changed, unit.read_text() if unit.exists() else ""


def _metrics(tmp_path: Path, where: str) -> tuple[str, str]:
    """What the bootstrap makes of the setting: whether something changed, and the unit."""
    script = _functions("place", "remove_metrics", "write_metrics")
    script += "if write_metrics; then echo changed; else echo ok; fi"
    settings = {"OSGYM_METRICS_TO": where, "OSGYM_METRICS_FLEET": "prod", "units": str(tmp_path)}
    done = subprocess.run(
        ["bash", "-eu", "-c", script],
        env={**os.environ, **settings, "opt": "/opt/osgym", "pressure": "/run/osgym/lease-pressure"},
        capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    unit = tmp_path / "osgym-metrics.service"
    return done.stdout.strip(), unit.read_text() if unit.exists() else ""


def test_what_a_fleet_is_scaled_by_is_published_by_a_process_of_its_own(tmp_path: Path) -> None:
    """The agent leaves a file, and has no credentials; where no group grows there is no such process."""
    assert _metrics(tmp_path, "none") == ("ok", "")
    changed, unit = _metrics(tmp_path, "cloudwatch:us-east-1")
    assert changed == "changed"
    command = "osgym_host.scaling cloudwatch:us-east-1 /run/osgym/lease-pressure prod"
    assert f"ExecStart=/opt/osgym/current/bin/python -m {command}\n" in unit
    assert "\nDynamicUser=yes\n" in unit and "\nUser=" not in unit
    assert _metrics(tmp_path, "cloudwatch:us-east-1") == ("ok", unit)
    assert _metrics(tmp_path, "none") == ("changed", "")


def test_the_cloud_is_asked_by_a_process_of_its_own(tmp_path: Path) -> None:
    """The agent's account never reaches the metadata service, nor does a guest that broke out into it: the
    process that does runs as somebody else, and reaches nothing besides."""
    assert _notices(tmp_path, "off") == ("off", "ok", "")
    agent, changed, unit = _notices(tmp_path, "aws")
    assert (agent, changed) == ("file:/run/osgym-notices/notice", "changed")
    assert (
        "ExecStart=/opt/osgym/current/bin/python -m osgym_host.notices aws /run/osgym-notices/notice" in unit
    )
    assert "\nDynamicUser=yes\n" in unit
    assert "\nUser=" not in unit
    assert "\nIPAddressDeny=any\nIPAddressAllow=169.254.169.254\n" in unit
    assert _notices(tmp_path, "aws")[1] == "ok"
    assert _notices(tmp_path, "gcp")[1] == "changed"
    assert _notices(tmp_path, "file:/run/osgym/drain") == ("file:/run/osgym/drain", "changed", "")
    rules = SHELL.split("chain output {")[1].split("}\n  chain forward")[0]
    assert "meta skuid $account ip daddr { 169.254.0.0/16," in rules
    assert "accept" not in rules.replace("policy accept;", "")


def test_a_machine_frozen_without_kvm_is_not_installed_where_kvm_is_paid_for(tmp_path: Path) -> None:
    """By name and for good: the same archive would be emulated for ever."""
    digest = "ab" * 32
    for accel, code in (("tcg", WILL_NOT_PASS), ("kvm", 0)):
        store, etc, data = tmp_path / accel, tmp_path / f"{accel}-etc", tmp_path / f"{accel}-data"
        for folder in (store / "images" / digest, store / "snapshots" / "s1", etc, data):
            folder.mkdir(parents=True)
        (store / "images" / digest / "manifest.json").write_text(json.dumps({"digest": digest}))
        (store / "snapshots" / "s1" / "manifest.json").write_text(json.dumps({"shape": {"accel": accel}}))
        archive = tmp_path / f"{accel}.tar"
        subprocess.run(["tar", "-cf", str(archive), "-C", str(store), "images", "snapshots"], check=True)
        script = 'say() { echo "osgym: $*"; }; for_good=3; die() { say "$*"; exit 1; }\n'
        script += 'die_for_good() { say "$*"; exit 3; }\n'
        script += _functions("quietly", "fetched", "step_image") + "step_image"
        done = subprocess.run(
            ["bash", "-eu", "-c", script],
            env={
                **os.environ, "here": str(FOLDER), "etc": str(etc), "OSGYM_DATA": str(data),
                "account": pwd.getpwuid(os.getuid()).pw_name, "OSGYM_HOST_RUNTIME": "qemu",
                "OSGYM_NEEDS_KVM": "yes", "OSGYM_IMAGE_DIGEST": digest, "OSGYM_IMAGE_URI": archive.as_uri(),
                "OSGYM_IMAGE_SHA256": hashlib.sha256(archive.read_bytes()).hexdigest(),
            },
            capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
        assert done.returncode == code, done.stdout
        assert ("frozen without KVM" in done.stdout) == bool(code)
        assert (data / "images" / digest).exists() == (not code)


def _image(tmp_path: Path, digest: str, disk: str, runtime: str) -> tuple[str, list[str]]:
    """What the step says of an archive with an image and a disk of it, and the disks on the host then."""
    store, (etc, data) = tmp_path / f"of-{disk}", (tmp_path / "etc", tmp_path / "data")
    for folder in (store / "images" / digest, store / "disks" / disk, store / "disks" / "tags", etc, data):
        folder.mkdir(parents=True, exist_ok=True)
    (store / "images" / digest / "manifest.json").write_text(json.dumps({"digest": digest}))
    (store / "disks" / "tags" / "small").write_text(disk)
    archive = tmp_path / f"{disk}.tar"
    if not archive.exists():
        subprocess.run(["tar", "-cf", str(archive), "-C", str(store), "images", "disks"], check=True)
    script = 'say() { echo "osgym: $*"; }; die() { say "$*"; exit 1; }; for_good=3\n'
    script += _functions("quietly", "fetched", "step_image") + "step_image"
    done = subprocess.run(
        ["bash", "-eu", "-c", script],
        env={
            **os.environ, "here": str(FOLDER), "etc": str(etc), "account": pwd.getpwuid(os.getuid()).pw_name,
            "OSGYM_DATA": str(data), "OSGYM_HOST_RUNTIME": runtime, "OSGYM_IMAGE_DIGEST": digest,
            "OSGYM_IMAGE_URI": archive.as_uri(),
            "OSGYM_IMAGE_SHA256": hashlib.sha256(archive.read_bytes()).hexdigest(),
        },
        capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    found = sorted(path.name for path in (data / "disks").iterdir() if path.name != "tags")
    assert runtime != "qemu" or (data / "disks" / "tags" / "small").read_text() == disk
    return done.stdout, found


def test_another_disk_of_the_same_image_is_fetched(tmp_path: Path) -> None:
    """An archive for virtual machines changes without its image; for namespaces the image says it all."""
    digest = "ab" * 32
    assert _image(tmp_path, digest, "d1", "qemu") == ("osgym: image changed: abababababab\n", ["d1"])
    assert _image(tmp_path, digest, "d1", "qemu") == ("osgym: image ok\n", ["d1"])
    assert _image(tmp_path, digest, "d2", "local") == ("osgym: image ok\n", ["d1"])
    assert _image(tmp_path, digest, "d2", "qemu") == (
        "osgym: image changed: abababababab\n",
        ["d1", "d2"],
    )


def test_a_machine_that_goes_down_drains_first(tmp_path: Path) -> None:
    """Only then: a restart of the agent alone is not held up."""
    for name, text in (
        ("systemctl", "#!/bin/sh\ncat state\n"),
        ("bootstrap.sh", '#!/bin/sh\necho "$@" > drained\n'),
    ):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    environment = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "lib": str(tmp_path), "here": str(tmp_path)}
    script = _functions("place", "write_going_down") + "write_going_down"
    subprocess.run(["bash", "-eu", "-c", script], env=environment, timeout=60, check=True)
    for state, drained in (("running", False), ("degraded", False), ("stopping", True)):
        (tmp_path / "state").write_text(state + "\n")
        subprocess.run([tmp_path / "going-down"], env=environment, cwd=tmp_path, timeout=60, check=True)
        assert (tmp_path / "drained").exists() is drained
    assert (tmp_path / "drained").read_text() == "drain --deadline-s 20 --wait\n"
    assert "\nExecStop=-+$lib/going-down\n" in SHELL


@pytest.mark.parametrize(("runtime", "mode"), [("local", "mixed"), ("qemu", "process")])
def test_machines_outlive_an_agent_that_was_killed(tmp_path: Path, runtime: str, mode: str) -> None:
    """systemd kills the agent's helpers and namespaces with it, but no virtual machines; and a group that
    passes controllers on no longer does when the next agent is started in it."""
    group = tmp_path / "service"
    for folder in (group / "osgym-main-0123abcd" / "r1", group / "agent"):
        folder.mkdir(parents=True)
    controls = [folder / "cgroup.subtree_control" for folder in (group, group / "osgym-main-0123abcd")]
    for control in controls:
        control.touch()
    names = ("units", "lib", "etc", "opt", "account", "here", "OSGYM_DATA")
    environment = {**os.environ, **dict.fromkeys(names, str(tmp_path)), "OSGYM_HOST_RUNTIME": runtime}
    script = _functions("place", "write_make_room", "write_unit") + "write_make_room; write_unit"
    subprocess.run(["bash", "-eu", "-c", script], env=environment, timeout=60, check=True)
    unit = (tmp_path / "osgym.service").read_text()
    assert f"\nKillMode={mode}\n" in unit
    assert f"\nExecStopPost=-+{tmp_path}/make-room\n" in unit
    room = (tmp_path / "make-room").read_text()
    own = "/sys/fs/cgroup$(sed -n 's/^0:://p' /proc/self/cgroup)"
    assert own in room
    subprocess.run(["sh", "-eu", "-c", room.replace(own, f"{group}/.control")], timeout=60, check=True)
    assert [control.read_text() for control in controls] == ["-memory -cpu -pids\n"] * 2


def test_there_is_room_for_settings_in_what_ec2_takes() -> None:
    """User data with long names and 40 allowed domains that compress badly: three quarters of what EC2 takes.
    Google Cloud gets the same uncompressed, below the same bound. The last number is passed long before a
    fleet fails: then what fetches the bootstrap has become too large."""
    digests = [hashlib.sha256(bytes([number])).hexdigest() for number in range(8)]
    bucket = f"s3://{digests[1][:63]}/fleets/production"
    place = BootPlace(f"{bucket}/bootstrap-{digests[5][:16]}.json", digests[5], f"{bucket}/status/")
    settings = {
        "OSGYM_AGENT_SHA256": digests[0],
        "OSGYM_AGENT_URI": f"s3://{digests[1][:63]}/fleets/production/agent-{digests[0]}.tar",
        "OSGYM_ALLOWED_CIDRS": " ".join(
            f"10.{number * 37 % 256}.{number * 101 % 256}.0/24" for number in range(16)
        ),
        "OSGYM_DEVICES": "auto",
        "OSGYM_IMAGE_DIGEST": f"sha256:{digests[2]}",
        "OSGYM_IMAGE_SHA256": digests[3],
        "OSGYM_IMAGE_URI": f"s3://{digests[1][:63]}/fleets/production/image-{digests[2]}.tar.zst",
        "OSGYM_NOTICES": "aws",
        "OSGYM_POLICY": "allowlist",
        "OSGYM_POLICY_ALLOW": ", ".join(f"*.{digests[n % 8][n : n + 12]}.example.org" for n in range(40)),
        "OSGYM_TOKEN_SOURCE": f"aws:arn:aws:secretsmanager:ap-southeast-3:123456789012:secret:{digests[4]}",
    }
    script = user_data(bootstrap_files(), settings | place.settings())
    assert len(base64.b64decode(ec2_user_data(script))) <= 12288 < MOST_USER_DATA_BYTES == 16384
    assert len(script) <= MOST_USER_DATA_BYTES
    bare = base64.b64decode(ec2_user_data(user_data(bootstrap_files(), {})))
    assert len(bare) <= 10240
    with pytest.raises(BadInput, match="osgym:egress_allowlist"):
        ec2_user_data(script + "".join(hashlib.sha256(bytes([n])).hexdigest() for n in range(255)))


def test_the_agents_settings_are_those_of_the_configuration(tmp_path: Path) -> None:
    """What is named reaches the agent's settings, and is taken there; what is not is left to the agent."""
    for named, wanted in (
        ({}, (2, "steps", 2048)),
        ({"warm": "7", "trajectory": "off", "trajectory_mib": "512"}, (7, "off", 512)),
        ({"warm": "0", "trajectory": "frames"}, (0, "frames", 2048)),
    ):
        config = parse({**SSH, **named})
        group = draw(config, Catalogue(), load_profile("desktop-local")).groups[0]
        told = environment(config, group, "file:/etc/osgym/token", FetchedArchives.named_in(config))
        given = {"OSGYM_LISTEN": "127.0.0.1", "OSGYM_DATA": str(tmp_path), "OSGYM_POLICY_ALLOW": "", **told}
        names = {"etc": str(tmp_path), "tls": str(tmp_path / "tls"), "units": str(tmp_path), "notice": "/x"}
        script = _functions("place", "notices_of_agent", "write_config") + "write_config"
        subprocess.run(
            ["bash", "-eu", "-c", script], env={**os.environ, **given, **names}, timeout=60, check=True
        )
        found = load_settings(tmp_path / "agent.yaml", {})
        assert (found.warm, found.trajectory, found.trajectory_max_mib) == wanted
