"""Packing what hosts fetch: the same for the same content, and nothing left when it is stopped."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from tests.support.host_process import wait_until

from osgym_host.images.definition import find_images_folder
from osgym_infra.archives import make
from osgym_infra.archives.pack import DISTRIBUTIONS, PackFailed, agent_definition, pack_image


def test_the_agents_definition_is_its_source(tmp_path: Path) -> None:
    """What a build leaves does not count; every other file does."""
    for part in DISTRIBUTIONS:
        (tmp_path / part / "src").mkdir(parents=True)
        (tmp_path / part / "src" / "a.py").write_text("a")
    first = agent_definition(tmp_path)
    for product in ("sdk/build/x", "sdk/src/__pycache__/a.pyc", "sdk/x.egg-info/y", "sdk/src/z.so"):
        (tmp_path / product).parent.mkdir(exist_ok=True)
        (tmp_path / product).write_text("b")
    assert agent_definition(tmp_path) == first
    (tmp_path / "constraints.txt").write_text("c")
    second = agent_definition(tmp_path)
    (tmp_path / "host_agent" / "src" / "a.py").write_text("b")
    assert len({first, second, agent_definition(tmp_path)}) == 3


def test_the_same_image_makes_the_same_archive(tmp_path: Path) -> None:
    """Whenever it was last read, and in whatever order its files lie on the disk."""
    made = []
    for order in (("a", "b"), ("b", "a")):
        data = tmp_path / order[0]
        image = data / "images" / ("cd" * 32)
        image.mkdir(parents=True)
        (data / "images" / "tags").mkdir()
        (data / "images" / "tags" / "small").write_text("cd" * 32)
        for name in (*order, "manifest.json"):
            (image / name).write_text(name)
        for path in sorted(data.rglob("*"), reverse=True):
            shutil.copystat(find_images_folder(), path)
        made.append(pack_image(data, "small", tmp_path / f"{order[0]}.tar"))
    assert made[0].sha256 == made[1].sha256
    named = made[0].named_by_content("small")
    assert named.path.name == f"small-{named.sha256[:16]}.tar"
    assert named.path.is_file()
    assert not made[0].path.exists()
    with pytest.raises(PackFailed, match="osgym image build"):
        pack_image(data, "full", tmp_path / "full.tar")


def test_a_pack_that_is_stopped_leaves_nothing(tmp_path: Path) -> None:
    """By the signal that a cancelled `pulumi up` leads to."""
    image = tmp_path / "store" / "images" / ("cd" * 32)
    image.mkdir(parents=True)
    (image / "manifest.json").touch()
    (image.parent / "tags").mkdir()
    (image.parent / "tags" / "small").write_text("cd" * 32)
    tar = tmp_path / "bin" / "tar"
    tar.parent.mkdir()
    tar.write_text("#!/bin/sh\nsleep 0.3\necho something\nexec sleep 60\n")
    tar.chmod(0o755)
    argv = [*make.PACK, "--only", "image", "--image", "small", "--data-dir", str(tmp_path / "store")]
    process = subprocess.Popen(
        [*argv, "--out", str(tmp_path / "out")],
        env={**os.environ, "PATH": f"{tar.parent}:{os.environ['PATH']}"},
    )
    wait_until(lambda: any(tmp_path.glob("out/.*.part")), 20, "it packs")
    process.terminate()
    assert process.wait(10) == 143
    assert list((tmp_path / "out").iterdir()) == []


def test_a_snapshot_that_is_emulated_is_noticed() -> None:
    """Of this image, as it is tagged now."""
    rows = [
        {"tagged": True, "reference": "full@desktop", "accel": "kvm"},
        {"tagged": False, "reference": "full@desktop", "accel": "tcg"},
        {"tagged": True, "reference": "small@desktop", "accel": "tcg"},
    ]
    assert [make.emulated(f"{json.dumps(rows)}\n", name) for name in ("full", "small")] == [False, True]


def test_a_frozen_machine_is_packed_without_the_holes_of_its_memory(tmp_path: Path) -> None:
    """Image, disk and snapshots by their tags; a disk that two of them share lies there once."""
    data, digest = tmp_path / "store", "cd" * 32
    for kind, tag in (("images", "small"), ("disks", "small"), ("snapshots", "small@desktop")):
        (data / kind / digest).mkdir(parents=True)
        (data / kind / digest / "manifest.json").write_text('{"shape": {"accel": "kvm"}}')
        (data / kind / "tags").mkdir()
        (data / kind / "tags" / tag).write_text(digest)
    (data / "disks" / digest / "disk.qcow2").write_bytes(bytes(range(256)) * 4096)
    (data / "snapshots" / digest / "base.qcow2").hardlink_to(data / "disks" / digest / "disk.qcow2")
    ram = data / "snapshots" / digest / "ram"
    with ram.open("wb") as file:
        file.seek(32 << 20)
        file.write(b"memory")
    packed = pack_image(data, "small", tmp_path / "small.tar", machines=True)
    assert packed.digest == digest
    assert packed.path.stat().st_size < 2 << 20
    (tmp_path / "host").mkdir()
    subprocess.run(["tar", "-xf", str(packed.path), "-C", str(tmp_path / "host")], check=True)
    there = tmp_path / "host" / "snapshots" / digest / "ram"
    assert there.read_bytes() == ram.read_bytes()
    assert there.stat().st_blocks * 512 < 1 << 20
    (data / "snapshots" / digest / "manifest.json").write_text('{"shape": {"accel": "tcg"}}')
    with pytest.raises(PackFailed, match=r"small@desktop was frozen without KVM.*--emulated"):
        pack_image(data, "small", tmp_path / "slow.tar", machines=True)
    assert not (tmp_path / "slow.tar").exists()
    assert pack_image(data, "small", tmp_path / "slow.tar", machines=True, emulated=True).digest == digest
    shutil.rmtree(data / "snapshots")
    with pytest.raises(PackFailed, match="osgym image snapshot small"):
        pack_image(data, "small", tmp_path / "small.tar", machines=True)
