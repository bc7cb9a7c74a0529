"""Making of archives with the users' own commands: `osgym image` and `osgym fleet pack`.

A command of its own can be stopped at any moment, and cleans up after itself. Those of images run as root,
since the files of an image belong to users of their own.
"""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from osgym_infra.archives.pack import PackedArchive, agent_definition
from osgym_infra.links.access import LOCAL
from osgym_infra.links.errors import CommandFailed, FleetHostError, Interrupted
from osgym_infra.links.link import OutputListener
from osgym_infra.links.local import LocalLink

IMAGE, AGENT = "osgym:index:ImageArchive", "osgym:index:AgentArchive"
"""Pulumi's types of the two archives."""
ROOT = Path(__file__).resolve().parents[3]
OSGYM = str(Path(sys.executable).with_name("osgym"))
PACK = [sys.executable, "-m", "osgym_infra", "fleet", "pack"]
KVM = Path("/dev/kvm")
LOOK_S = 60.0
BAKE_S = 7200.0
SNAPSHOT_S = 3600.0
PACK_S = 3600.0

PASSED = ("OSGYM_", "PIP_")
"""Of our environment, commands get what begins like this, but for the token."""


async def definition(kind: str, values: Mapping[str, Any]) -> str:
    """Return the digest of the archive's sources, without making it.

    Raises:
        CommandFailed: No image is defined like that.
    """
    if kind == AGENT:
        return await asyncio.to_thread(agent_definition, ROOT)
    argv = ["image", "definition", "--flavor", values["flavor"], *_lock(values)]
    output = await _run([OSGYM, *argv, *_vm(values)], LOOK_S, root=False)
    return output.split()[-1]


async def make(kind: str, values: Mapping[str, Any], say: OutputListener) -> PackedArchive:
    """Bake the image, unless the store has one of this definition, and pack it.

    Raises:
        HostError: Which command failed, with the end of its output; a bake that did not end leaves nothing.
        Interrupted: This task was cancelled; the same holds.
    """
    folder = Path(values["folder"])
    step = "pack"
    try:
        # A frozen machine's secret is in its archive, and the image's password file.
        await asyncio.to_thread(folder.mkdir, mode=0o700, parents=True, exist_ok=True)
        if kind == AGENT:
            say("packing the host agent")
            return _made(await _run([*PACK, "--only", "agent", "--out", str(folder)], PACK_S, root=False))
        step = "bake"
        await _bake(values, say)
        step = "pack"
        say(f"packing the image {values['flavor']}")
        argv = [*PACK, "--only", "image", "--image", values["flavor"], *_vm(values), "--out", str(folder)]
        argv += ["--emulated"] if values.get("machines") and not values.get("kvm") else []
        return _made(await _run(argv, PACK_S))
    except asyncio.CancelledError:
        raise Interrupted(LOCAL, "interrupted; everything partial was removed", step) from None
    except FleetHostError as error:
        error.step = step
        raise
    except OSError as error:
        raise FleetHostError(LOCAL, f"{folder}: {error.strerror}", step) from error


async def _bake(values: Mapping[str, Any], say: OutputListener) -> None:
    """Bake the image, and for virtual machines its disk and a snapshot; skip what exists."""
    flavor = values["flavor"]
    build = [OSGYM, "image", "build", "--flavor", flavor, *_lock(values)]
    # Every host can use qcow2, whatever its file system.
    await _run([*build, *(["--format", "qcow2"] if values.get("machines") else [])], BAKE_S, say)
    if values.get("machines"):
        await _run([OSGYM, "image", "snapshot", flavor], SNAPSHOT_S, say)
        listed = await _run([OSGYM, "image", "snapshots", "--json"], LOOK_S)
        if not emulated(listed, flavor):
            return
        if values.get("kvm"):
            raise FleetHostError(LOCAL, f"{flavor} was frozen without KVM. {elsewhere(flavor)}")
        say(
            f"warning: {flavor} was frozen without KVM: hosts will emulate it too, which is many times slower"
        )


def needs_kvm_here(values: Mapping[str, Any]) -> str:
    """Return why this machine cannot make an archive for hosts with KVM; empty: it can."""
    if not (values.get("machines") and values.get("kvm")) or KVM.exists():
        return ""
    return f"there is no {KVM} here, and snapshots made without it are emulated on hosts. " + elsewhere(
        values["flavor"]
    )


def elsewhere(flavor: str) -> str:
    """Return the commands that make the archive on a machine with KVM."""
    return (
        "Bake where `osgym doctor` says that KVM works, with the CPU of the hosts (a machine of their type): "
        f"osgym image build --flavor {flavor} --format qcow2; osgym image snapshot {flavor} --refresh; "
        f"osgym fleet pack --vm --image {flavor}; upload, and name it by osgym:image_uri. "
        "Or osgym:runtime: local, which needs no KVM"
    )


def emulated(listed: str, flavor: str) -> bool:
    """Return whether `osgym image snapshots --json` lists a snapshot of the image that needs no KVM."""
    rows = json.loads(listed.strip().splitlines()[-1])
    own = [row for row in rows if row["tagged"] and row["reference"].startswith(f"{flavor}@")]
    return any(row["accel"] == "tcg" for row in own)


async def _run(
    argv: list[str], timeout_s: float, say: OutputListener | None = None, *, root: bool = True
) -> str:
    transport = LocalLink(environment(os.environ), root=root)
    await transport.connect()
    done = await transport.run(argv, timeout_s=timeout_s, on_output=say)
    if done.exit_code != 0:
        shown = shlex.join([Path(argv[0]).name, *argv[1:]])
        raise CommandFailed(LOCAL, shown, done.exit_code, done.output)
    return done.output


def environment(ours: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of ours that commands get besides those of every command here.

    The store is root's, whoever we are: hosts use the same numbers of users.
    """
    passed = {
        name: value for name, value in ours.items() if name.startswith(PASSED) and name != "OSGYM_TOKEN"
    }
    # Through sudo they run in a tree that is a user's, who could not remove what root leaves there.
    return {"OSGYM_DATA_DIR": "/var/lib/osgym", "PYTHONDONTWRITEBYTECODE": "1", **passed}


def _made(output: str) -> PackedArchive:
    found = json.loads(output.strip().splitlines()[-1])
    return PackedArchive(Path(found["path"]), found["sha256"], found["digest"])


def _lock(values: Mapping[str, Any]) -> list[str]:
    return ["--lock", values["lock"]] if values.get("lock") else []


def _vm(values: Mapping[str, Any]) -> list[str]:
    return ["--vm"] if values.get("machines") else []
