"""The argument vector of QEMU: pure, and the only place that knows the devices of our machines.

A `Shape` is what the guest and the migration stream see. It is the same for the template that was
booted, for its clones, for parked processes and for the children of a branch; a snapshot's manifest
keeps it. A `Launch` is what one process gets besides: its disk, RAM file, sockets, console, kernel.

Names that QMP commands may rely on, whatever is launched: block node `d0` (format) over `d0f`
(protocol) of device `vd0`; where it has a base, below it `g0` over `g0f` and `i0` over `i0f` (read-only);
netdev `n0` of device `vn0`; RAM object `ram0`; console `s0`.
"""

from __future__ import annotations

import enum
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from osgym_qemu.disks.manifest import Firmware

DISK_NODE = "d0"
DISK_FILE_NODE = "d0f"
BASE_NODE = "g0"
BASE_FILE_NODE = "g0f"
IMAGE_NODE = "i0"
IMAGE_FILE_NODE = "i0f"
DISK_DEVICE = "vd0"
NETDEV = "n0"
STATE_NETDEV = "n1"
NET_DEVICE = "vn0"
CONSOLE = "s0"

QEMU = "qemu-system-x86_64"
MACHINE = "pc-i440fx-7.2"
"""Versioned, so that a newer QEMU still offers the same devices and state formats."""
CPU_MODEL = "Nehalem"
"""The oldest named model with SSE4.2 and POPCNT, which Chromium and numpy need; TCG has all of it."""

QMP_FD = 3
"""Descriptor of the listening socket of the QMP server in QEMU."""
RAM_FD = 4
"""Descriptor of the golden RAM in QEMU."""
INHERITED_RAM = f"/proc/self/fd/{RAM_FD}"
SCREEN_QMP_FD = 5
"""Descriptor of a second QMP server, for screen and input of guests without our agent: their many and
large commands do not hold up those that run the machine."""
RAM_CONTROL_FD = 7
"""Descriptor of the library's socket in QEMU (`ram_native`); a tap device is at 6."""
BASE_FD = 8
"""Descriptor of a snapshot's frozen disk: its files are their owner's only, and QEMU is another user."""
IMAGE_FD = 9
"""Descriptor of the disk image below the frozen disk."""
UEFI_FD = 10
"""Descriptor of a memory file with the firmware, which QEMU opens by name."""
INHERITED_UEFI = Path(f"/proc/self/fd/{UEFI_FD}")
MAC = "52:54:00:6f:73:67"
"""MAC address of all clones, as in the frozen state; each is alone on its network."""
GUEST_IP = "10.0.2.15"
GATEWAY_IP = "10.0.2.2"
GUEST_PORT = 5000


class Accel(enum.StrEnum):
    """Way to run guest code. The state of one cannot be loaded by the other."""

    KVM = "kvm"
    TCG = "tcg"


class DiskBus(enum.StrEnum):
    VIRTIO = "virtio"
    SATA = "sata"  # what a Windows without virtio drivers boots from


class Nic(enum.StrEnum):
    VIRTIO = "virtio"
    E1000E = "e1000e"  # what a Windows without virtio drivers knows


@dataclass(frozen=True, slots=True)
class Shape:
    """Hardware of a machine as guest and migration stream see it; immutable for the life of a snapshot.

    Attributes:
        machine: Versioned machine type.
        cpu: CPU model, with flags if any.
        vga: True for a standard VGA screen and a USB tablet (guests without our agent).
        screen_px: Size that this screen reports as its own (EDID), which guests then choose.
        nic: Model of the network device.
    """

    accel: Accel = Accel.TCG
    machine: str = MACHINE
    cpu: str = CPU_MODEL
    vcpus: int = 1
    ram_mib: int = 1024
    vga: bool = False
    network: bool = True
    firmware: Firmware = Firmware.BIOS
    screen_px: tuple[int, int] = (1280, 800)
    disk_bus: DiskBus = DiskBus.VIRTIO
    nic: Nic = Nic.VIRTIO


@dataclass(frozen=True, slots=True)
class Disk:
    """Disk of one process.

    Attributes:
        path: Path of the top layer, which is written to.
        format: `qcow2` or `raw`.
        base_image: Format of the disk image below a snapshot's frozen disk (qcow2), over which the top
            layer lies; both are read by inherited descriptors (`BASE_FD`, `IMAGE_FD`) and not by name.
            None takes what the header of the top layer names, if it names any.
    """

    path: Path
    format: str = "qcow2"
    base_image: str | None = None


@dataclass(frozen=True, slots=True)
class Ram:
    """File behind the guest's RAM: written through when shared, else copied on write."""

    path: str
    share: bool


@dataclass(frozen=True, slots=True)
class Kernel:
    """Kernel that QEMU loads itself. Clones have none: it costs 13 MB each."""

    kernel: Path
    initrd: Path | None
    append: str


@dataclass(frozen=True, slots=True)
class UserNet:
    """User-mode networking with one port forwarded to the guest agent.

    Attributes:
        host_port: On 127.0.0.1; 0 lets the kernel choose (ask `Machine.host_port`).
        restrict: True if the guest reaches nothing, not even the host.
    """

    host_port: int = 0
    restrict: bool = True
    guest_port: int = GUEST_PORT


@dataclass(frozen=True, slots=True)
class TapNet:
    """Existing tap device, by name or as an inherited descriptor."""

    ifname: str | None = None
    fd: int | None = None


@dataclass(frozen=True, slots=True)
class RingConsole:
    """Serial console that keeps its last bytes in memory: a flood of the guest costs nothing more."""

    size_bytes: int = 65536  # a power of two


@dataclass(frozen=True, slots=True)
class FileConsole:
    """Serial console written to a file, for guests that are not hostile yet (templates)."""

    path: Path


@dataclass(frozen=True, slots=True)
class Launch:
    """Options of one QEMU process besides its shape.

    Attributes:
        name: Shown by `ps`; `[A-Za-z0-9_.-]+`.
        qmp: Path of the QMP socket, or the number of an inherited listening one.
        screen_qmp: Path or descriptor of a second QMP server; None for none.
        network: Backend of the network device; None leaves it unplugged.
        incoming: True to wait for a state to load (`-incoming defer`).
        paused: True to stay paused until `cont`.
        uefi: UEFI firmware whose variables are kept in the machine's memory (OVMF.fd); None for BIOS.
        tb_mib: Size of TCG's cache of translated code; touched only as it fills.
        credentials: Files that each hold one string `io.systemd.credential:<name>=<value>` for the
            guest's init system; only where it is booted.
        sandbox: seccomp: no spawning, no privileges, no control of other processes.
    """

    name: str
    disk: Disk
    ram: Ram
    qmp: Path | int = QMP_FD
    screen_qmp: Path | int | None = None
    network: UserNet | TapNet | None = None
    console: RingConsole | FileConsole = field(default_factory=RingConsole)
    kernel: Kernel | None = None
    uefi: Path | None = None
    credentials: tuple[Path, ...] = ()
    incoming: bool = False
    paused: bool = False
    tb_mib: int = 64
    sandbox: bool = True
    qemu: str = QEMU


def to_argv(shape: Shape, launch: Launch) -> list[str]:
    """Return the whole argument vector, beginning with the program."""
    argv = [launch.qemu, "-name", launch.name, "-nodefaults", "-no-user-config", "-display", "none"]
    argv += _board(shape, launch)
    argv += _block(shape, launch.disk)
    argv += _net(shape, launch.network)
    argv += _small_devices(shape, launch)
    argv += _monitor(launch)
    if launch.kernel is not None:
        argv += ["-kernel", str(launch.kernel.kernel)]
        if launch.kernel.initrd is not None:
            argv += ["-initrd", str(launch.kernel.initrd)]
        argv += ["-append", launch.kernel.append]
    for path in launch.credentials:
        argv += ["-smbios", f"type=11,path={_comma(str(path))}"]
    if launch.incoming:
        argv += ["-incoming", "defer"]
    if launch.paused:
        argv += ["-S"]
    return argv


def block_options(disk: Disk) -> list[dict[str, Any]]:
    """Return the block nodes of a disk from the bottom up, as `-blockdev` and `blockdev-add` take them."""
    nodes: list[dict[str, Any]] = []
    top: dict[str, Any] = {
        "driver": disk.format,
        "node-name": DISK_NODE,
        "file": DISK_FILE_NODE,
        "discard": "unmap",
        "cache": {"direct": False, "no-flush": True},
    }
    if disk.base_image is not None:
        frozen = {"read-only": True}
        image = {"driver": disk.base_image, "node-name": IMAGE_NODE, "file": IMAGE_FILE_NODE}
        base = {"driver": "qcow2", "node-name": BASE_NODE, "file": BASE_FILE_NODE, "backing": IMAGE_NODE}
        for number, above in ((IMAGE_FD, image), (BASE_FD, base)):
            name = f"/dev/fdset/{number}"
            nodes.append({"driver": "file", "node-name": above["file"], "filename": name, **frozen})
            nodes.append({**above, **frozen})
        top["backing"] = BASE_NODE
    file = {
        "driver": "file",
        "node-name": DISK_FILE_NODE,
        "filename": str(disk.path),
        "discard": "unmap",
        "cache": {"direct": False, "no-flush": True},
    }
    return [*nodes, file, top]


def _board(shape: Shape, launch: Launch) -> list[str]:
    machine = f"{shape.machine},memory-backend=ram0,suppress-vmdesc=on,vmport=off,dump-guest-core=off"
    argv: list[str] = []
    if launch.uefi is not None:
        argv += ["-bios", str(launch.uefi)]
    if shape.accel is Accel.TCG:
        thread = "single" if shape.vcpus == 1 else "multi"
        accel, cpu = f"tcg,thread={thread},tb-size={launch.tb_mib}", shape.cpu
    else:
        # A model that the processor lacks a part of would be taken silently.
        accel, cpu = "kvm", f"{shape.cpu},enforce"
    share = "on" if launch.ram.share else "off"
    ram = f"memory-backend-file,id=ram0,mem-path={_comma(launch.ram.path)},size={shape.ram_mib}M"
    argv += ["-machine", machine, "-accel", accel, "-cpu", cpu, "-smp", str(shape.vcpus)]
    argv += ["-m", f"{shape.ram_mib}M", "-object", f"{ram},share={share},merge=off,dump=off"]
    argv += ["-global", "migration.send-configuration=off", "-rtc", "base=utc"]
    # A guest that stops, restarts or panics is kept as it is: its end is read from QMP, then killed.
    argv += ["-action", "reboot=shutdown,shutdown=pause,panic=pause"]
    return argv


def _block(shape: Shape, disk: Disk) -> list[str]:
    argv: list[str] = []
    for number in (BASE_FD, IMAGE_FD) if disk.base_image is not None else ():
        argv += ["-add-fd", f"fd={number},set={number}"]
    for node in block_options(disk):
        argv += ["-blockdev", _json(node)]
    errors = "werror=stop,rerror=stop,bootindex=1"
    if shape.disk_bus is DiskBus.SATA:
        argv += ["-device", f"ich9-ahci,id=ahci0,{_slot(shape, 4)}"]
        return [*argv, "-device", f"ide-hd,id={DISK_DEVICE},drive={DISK_NODE},bus=ahci0.0,{errors}"]
    device = f"virtio-blk-pci,id={DISK_DEVICE},drive={DISK_NODE},{_slot(shape, 4)},num-queues=1"
    return [*argv, "-device", f"{device},{errors}"]


def _net(shape: Shape, backend: UserNet | TapNet | None) -> list[str]:
    if not shape.network:
        return []
    argv: list[str] = []
    options = f"ipv6=off,net=10.0.2.0/24,host={GATEWAY_IP},dhcpstart={GUEST_IP}"
    if not isinstance(backend, UserNet):
        # User-mode networking has a part in the saved state, which must find its like: one to nowhere.
        argv += ["-netdev", f"user,id={STATE_NETDEV},restrict=on,{options}"]
    match backend:
        case UserNet():
            restrict = "on" if backend.restrict else "off"
            forward = f"tcp:127.0.0.1:{backend.host_port}-{GUEST_IP}:{backend.guest_port}"
            argv += ["-netdev", f"user,id={NETDEV},restrict={restrict},{options},hostfwd={forward}"]
        case TapNet(fd=int(fd)):
            argv += ["-netdev", f"tap,id={NETDEV},fd={fd}"]
        case TapNet():
            argv += ["-netdev", f"tap,id={NETDEV},ifname={backend.ifname},script=no,downscript=no"]
        case None:
            argv += ["-netdev", f"hubport,id={NETDEV},hubid=0"]
    device = f"id={NET_DEVICE},netdev={NETDEV},{_slot(shape, 5)},mac={MAC},romfile="
    if shape.nic is Nic.E1000E:
        return [*argv, "-device", f"e1000e,{device}"]
    # What user-mode networking cannot do is off for tap too, so that one state fits both. A clone's network
    # is new: that its guest announces itself there, first of all, would be a tenth of what it does.
    features = "csum=off,gso=off,guest_csum=off,mrg_rxbuf=on,guest_announce=off"
    return [*argv, "-device", f"virtio-net-pci,{device},{features}"]


def _small_devices(shape: Shape, launch: Launch) -> list[str]:
    argv = ["-device", f"virtio-rng-pci,id=rng0,{_slot(shape, 6)}", "-device", "pvpanic,id=panic0"]
    if shape.vga:
        width, height = shape.screen_px
        size = f"vgamem_mb=16,edid=on,xres={width},yres={height},xmax={width},ymax={height}"
        argv += ["-device", f"VGA,id=vga0,{_slot(shape, 2)},{size}"]
        argv += [
            "-device",
            f"qemu-xhci,id=usb0,{_slot(shape, 7)}",
            "-device",
            "usb-tablet,id=tablet0,bus=usb0.0",
        ]
    match launch.console:
        case RingConsole():
            argv += ["-chardev", f"ringbuf,id={CONSOLE},size={launch.console.size_bytes}"]
        case FileConsole():
            argv += ["-chardev", f"file,id={CONSOLE},path={_comma(str(launch.console.path))}"]
    return [*argv, "-serial", f"chardev:{CONSOLE}"]


def _monitor(launch: Launch) -> list[str]:
    argv = _qmp_server("qmp0", launch.qmp)
    if launch.screen_qmp is not None:
        argv += _qmp_server("qmp1", launch.screen_qmp)
    if launch.sandbox:
        argv += ["-sandbox", "on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny"]
    return argv


def _qmp_server(name: str, at: Path | int) -> list[str]:
    where = f"fd={at}" if isinstance(at, int) else f"path={_comma(str(at))}"
    return [
        "-chardev",
        f"socket,id={name},{where},server=on,wait=off",
        "-mon",
        f"chardev={name},mode=control",
    ]


def _slot(shape: Shape, number: int) -> str:
    """Return a fixed slot on the bus, so that a further device elsewhere moves no other."""
    bus = "pcie.0" if "q35" in shape.machine else "pci.0"
    return f"bus={bus},addr=0x{number:x}"


def _comma(value: str) -> str:
    return value.replace(",", ",,")


def _json(value: dict[str, Any]) -> str:
    return json.dumps(value, separators=(",", ":"))
