"""The argument vector: what all processes of a snapshot share, and what is each one's own."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from osgym_qemu.disks.manifest import Firmware
from osgym_qemu.machine.argv import (
    INHERITED_RAM,
    Accel,
    Disk,
    DiskBus,
    FileConsole,
    Kernel,
    Launch,
    Nic,
    Ram,
    RingConsole,
    Shape,
    TapNet,
    UserNet,
    block_options,
    to_argv,
)

TEMPLATE = Launch(
    "vm",
    Disk(Path("/t/disk.qcow2")),
    Ram(INHERITED_RAM, share=True),
    network=UserNet(),
    console=FileConsole(Path("/t/console.log")),
    kernel=Kernel(Path("/k"), Path("/i"), "root=/dev/vda2 quiet"),
    credentials=(Path("/t/token"),),
    tb_mib=256,
)
CLONE = Launch(
    "r1",
    Disk(Path("/c/overlay.qcow2"), base_image="raw"),
    Ram(INHERITED_RAM, share=False),
    network=UserNet(),
    incoming=True,
    paused=True,
)


def options(argv: list[str], name: str) -> list[str]:
    """All values that an option was given, in order."""
    return [value for option, value in itertools.pairwise(argv) if option == name]


def fields(value: str) -> dict[str, str]:
    """`a,b=c` as a dictionary, the first word under an empty name."""
    first, *rest = value.split(",")
    return {"": first, **{name: given for name, _, given in (part.partition("=") for part in rest)}}


def nodes(argv: list[str]) -> dict[str, dict[str, Any]]:
    """The block nodes by name."""
    found = [json.loads(text) for text in options(argv, "-blockdev")]
    return {node["node-name"]: node for node in found}


@pytest.mark.parametrize(
    "shape",
    [
        Shape(),
        Shape(vcpus=4, ram_mib=2048),
        Shape(vga=True),
        Shape(network=False),
        Shape(machine="pc-q35-7.2"),
        Shape(accel=Accel.KVM, cpu="Haswell-noTSX"),
    ],
    ids=str,
)
def test_what_guest_and_state_see_is_the_same_for_template_and_clone(shape: Shape) -> None:
    """A state is only loaded by a machine with the same devices in the same places."""
    template, clone = to_argv(shape, TEMPLATE), to_argv(shape, CLONE)
    for name in ("-device", "-machine", "-cpu", "-smp", "-m", "-global", "-rtc", "-serial"):
        assert options(template, name) == options(clone, name), name


def test_a_template_writes_its_ram_through_and_a_clone_does_not() -> None:
    """The one difference in RAM: shared or private."""
    [template] = options(to_argv(Shape(ram_mib=1024), TEMPLATE), "-object")
    [clone] = options(to_argv(Shape(ram_mib=1024), CLONE), "-object")
    assert fields(template)["share"] == "on"
    assert fields(clone)["share"] == "off"
    assert fields(template)["size"] == fields(clone)["size"] == "1024M"
    assert fields(clone)["mem-path"] == "/proc/self/fd/4"


def test_a_clone_waits_without_a_kernel() -> None:
    """A kernel in a clone costs memory and is never run."""
    argv = to_argv(Shape(), CLONE)
    assert "-kernel" not in argv and "-smbios" not in argv
    assert options(argv, "-incoming") == ["defer"]
    assert "-S" in argv
    template = to_argv(Shape(), TEMPLATE)
    assert options(template, "-kernel") == ["/k"]
    assert options(template, "-smbios") == ["type=11,path=/t/token"]
    assert "-S" not in template and "-incoming" not in template


def test_the_disk_of_a_clone_lies_over_a_named_read_only_base() -> None:
    """A branch changes what the top node is laid over, by these names; frozen files come as descriptors."""
    argv = to_argv(Shape(), CLONE)
    found = nodes(argv)
    assert options(argv, "-add-fd") == ["fd=8,set=8", "fd=9,set=9"]
    assert found["d0"]["backing"] == "g0"
    assert found["d0"]["file"] == "d0f"
    assert found["g0"]["file"] == "g0f"
    assert found["g0"]["read-only"] and found["g0f"]["read-only"]
    assert found["g0f"]["filename"] == "/dev/fdset/8"
    assert found["g0"]["backing"] == "i0" and found["i0"]["driver"] == "raw"
    assert found["i0"]["file"] == "i0f" and found["i0f"]["filename"] == "/dev/fdset/9"
    assert found["i0"]["read-only"] and found["i0f"]["read-only"]
    assert "read-only" not in found["d0f"]
    assert all(node["cache"]["no-flush"] for name, node in found.items() if name.startswith("d0"))


def test_nodes_come_before_those_that_name_them() -> None:
    """QEMU opens them in order."""
    seen: set[str] = set()
    for node in block_options(Disk(Path("/x"), base_image="qcow2")):
        assert {node[key] for key in ("file", "backing") if isinstance(node.get(key), str)} <= seen
        seen.add(node["node-name"])


def test_a_guest_reaches_nothing_and_is_reached_on_loopback_only() -> None:
    """User networking is restricted, with one port on 127.0.0.1."""
    [netdev] = options(to_argv(Shape(), CLONE), "-netdev")
    assert fields(netdev)["restrict"] == "on"
    assert fields(netdev)["hostfwd"] == "tcp:127.0.0.1:0-10.0.2.15:5000"


@pytest.mark.parametrize(
    ("backend", "expected"),
    [
        (TapNet(fd=7), "tap,id=n0,fd=7"),
        (TapNet(ifname="tap3"), "tap,id=n0,ifname=tap3,script=no,downscript=no"),
        (None, "hubport,id=n0,hubid=0"),
    ],
)
def test_other_backends_change_nothing_that_the_guest_sees(backend: TapNet | None, expected: str) -> None:
    """A clone may be plugged in elsewhere than its template; there is a place for its state to load."""
    plugged = Launch("r1", CLONE.disk, CLONE.ram, network=backend)
    argv = to_argv(Shape(), plugged)
    nowhere, found = options(argv, "-netdev")
    assert found == expected
    assert nowhere.startswith("user,id=n1,restrict=on,") and "hostfwd" not in nowhere
    assert options(argv, "-device") == options(to_argv(Shape(), CLONE), "-device")


def test_an_end_of_the_guest_is_kept_to_be_looked_at() -> None:
    """A guest that reboots, stops or panics does not run on and does not take its process with it."""
    assert options(to_argv(Shape(), CLONE), "-action") == ["reboot=shutdown,shutdown=pause,panic=pause"]


def test_an_error_of_the_disk_stops_the_guest() -> None:
    """A full disk is the host's fault: the guest must not see it as its own."""
    [disk] = [device for device in options(to_argv(Shape(), CLONE), "-device") if "drive=d0" in device]
    assert fields(disk)["werror"] == fields(disk)["rerror"] == "stop"


def test_the_console_of_a_clone_is_bounded() -> None:
    """A guest that floods its serial line costs a fixed piece of memory."""
    chardevs = options(to_argv(Shape(), CLONE), "-chardev")
    assert f"ringbuf,id=s0,size={RingConsole().size_bytes}" in chardevs
    assert not any(chardev.startswith("file") for chardev in chardevs)


def test_qemu_may_start_nothing() -> None:
    """seccomp is on, also against programs that QEMU would start by itself."""
    [sandbox] = options(to_argv(Shape(), CLONE), "-sandbox")
    assert fields(sandbox)[""] == "on"
    assert {fields(sandbox)[name] for name in ("spawn", "elevateprivileges", "resourcecontrol")} == {"deny"}
    assert "-nodefaults" in to_argv(Shape(), CLONE) and "-no-user-config" in to_argv(Shape(), CLONE)


def test_kvm_refuses_a_processor_that_lacks_a_part_of_the_model() -> None:
    """Else it would be taken silently, and the guest would crash later."""
    argv = to_argv(Shape(accel=Accel.KVM), CLONE)
    assert options(argv, "-cpu") == ["Nehalem,enforce"]
    assert options(argv, "-accel") == ["kvm"]
    assert options(to_argv(Shape(), CLONE), "-accel") == ["tcg,thread=single,tb-size=64"]
    assert options(to_argv(Shape(vcpus=2), CLONE), "-accel") == ["tcg,thread=multi,tb-size=64"]


def test_commas_in_paths_are_not_options() -> None:
    """A path may not smuggle in options of its own."""
    launch = Launch("r1", CLONE.disk, Ram("/a,share=on", share=False), qmp=Path("/b,c"))
    argv = to_argv(Shape(), launch)
    assert "mem-path=/a,,share=on," in options(argv, "-object")[0]
    assert any("path=/b,,c," in chardev for chardev in options(argv, "-chardev"))


def test_firmware_starts_a_disk_that_has_no_kernel_beside_it() -> None:
    """An imported disk is started by BIOS, or by UEFI with its variables in memory."""
    launch = Launch("r1", Disk(Path("/d.raw"), "raw"), Ram("/r", share=True), uefi=Path("/ovmf.fd"))
    argv = to_argv(Shape(firmware=Firmware.UEFI, vga=True), launch)
    assert nodes(argv)["d0"]["driver"] == "raw"
    assert options(argv, "-bios") == ["/ovmf.fd"]
    devices = " ".join(options(argv, "-device"))
    assert "VGA," in devices and "usb-tablet" in devices


def test_a_disk_without_virtio_drivers_gets_devices_that_every_system_knows() -> None:
    """SATA and an Intel network card, with the same names for QMP."""
    shape = Shape(vga=True, disk_bus=DiskBus.SATA, nic=Nic.E1000E, screen_px=(1024, 768))
    devices = options(to_argv(shape, CLONE), "-device")
    assert any(part.startswith("ide-hd,id=vd0,drive=d0,bus=ahci0.0,werror=stop") for part in devices)
    assert any(part.startswith("e1000e,id=vn0,netdev=n0") for part in devices)
    assert not any("virtio-blk" in part or "virtio-net" in part for part in devices)
    assert any("xres=1024,yres=768" in part for part in devices)


def test_a_second_qmp_server_is_there_when_asked_for() -> None:
    """For screen and input; the first one stays as it is."""
    argv = to_argv(Shape(), replace(CLONE, screen_qmp=5))
    assert options(argv, "-mon") == ["chardev=qmp0,mode=control", "chardev=qmp1,mode=control"]
    assert "socket,id=qmp1,fd=5,server=on,wait=off" in options(argv, "-chardev")
