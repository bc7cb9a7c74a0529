"""A small Debian guest without any agent, for tests: a kernel, an X server on the VGA screen, two windows.

It boots by firmware, from whatever disk controller, and has nothing that talks to the host. Its packages
are unpacked, not installed, and only what runs is kept, so that it is made in half a minute and up in
twenty seconds under emulation. X takes the screen's own size. There is a terminal on the left, a
calculator on the right.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import stat
import struct
import subprocess
import tempfile
from collections.abc import Iterable
from pathlib import Path

SUITE = "bookworm"
PACKAGES = (
    "busybox-static",
    "linux-image-amd64",
    "xserver-xorg-core",
    "xserver-xorg-input-evdev",
    "x11-xkb-utils",
    "x11-xserver-utils",
    "xkb-data",
    "openbox",
    "xterm",
    "x11-apps",
    "fonts-dejavu-core",
)
BOOT_MODULES = ("virtio_pci", "virtio_blk", "ahci", "sd_mod", "ext4", "crc32c_generic")
"""What finds the root file system, whatever the controller."""
DESKTOP_MODULES = ("bochs", "xhci_pci", "usbhid", "hid_generic", "evdev", "psmouse")
UNWANTED = (
    "./usr/share/doc",
    "./usr/share/man",
    "./usr/share/locale",
    "./usr/share/poppler",
    "./usr/share/ghostscript",
    "./usr/share/mime",
    "./usr/share/groff",
    "./usr/share/perl*",
    "./usr/lib/gcc",
    "./usr/lib/python3*",
    "./usr/lib/x86_64-linux-gnu/perl*",
    "./usr/lib/x86_64-linux-gnu/dri",
    "./usr/lib/x86_64-linux-gnu/libLLVM*",
    "./usr/lib/x86_64-linux-gnu/libz3*",
    "./dev/*",
)
LABEL = "plain"
SECTOR = 512
BOOT_SECTORS = 48 << 11
"""48 MiB for kernel and initial RAM disk."""

BOOT_INIT = f"""#!/bin/busybox sh
/bin/busybox mkdir -p /dev /proc /sys /root
/bin/busybox mount -t devtmpfs dev /dev
/bin/busybox mount -t proc proc /proc
/bin/busybox mount -t sysfs sys /sys
while read -r module; do /bin/busybox insmod "/modules/$module"; done < /modules/order
until /bin/busybox mount -t ext4 LABEL={LABEL} /root 2>/dev/null; do /bin/busybox sleep 0.1; done
for folder in dev proc sys; do /bin/busybox mount -o move "/$folder" "/root/$folder"; done
exec /bin/busybox switch_root /root /sbin/init
"""

INIT = """#!/bin/busybox sh
export PATH=/usr/bin:/bin:/usr/sbin:/sbin HOME=/root SHELL=/bin/sh DISPLAY=:0 TERM=xterm
mkdir -p /dev/pts /tmp /run
mount -t devpts devpts /dev/pts
mount -t tmpfs tmpfs /tmp
mount -t tmpfs tmpfs /run
mkdir -m 1777 /tmp/.X11-unix
ln -s /proc/self/fd /dev/fd
while read -r module; do insmod "/usr/lib/plain/$module"; done < /usr/lib/plain/order
event() { # the event device of an input device by its name
  while ! grep -q "Name=\\"$1" /proc/bus/input/devices; do sleep 0.1; done
  awk -v name="$1" 'index($0, "Name=\\"" name) { f = 1 }
    f && /^H:/ { match($0, /event[0-9]+/); print substr($0, RSTART, RLENGTH); exit }' /proc/bus/input/devices
}
keyboard=$(event "AT Translated")
tablet=$(event "QEMU QEMU USB Tablet")
until [ -e /dev/dri/card0 ] && [ -e "/dev/input/$keyboard" ] && [ -e "/dev/input/$tablet" ]; do
  sleep 0.1
done
cat > /run/xorg.conf <<EOF
Section "ServerFlags"
  Option "AutoAddDevices" "false"
  Option "BlankTime" "0"
  Option "DPMS" "false"
EndSection
Section "Module"
  Disable "glx"
EndSection
Section "Device"
  Identifier "card"
  Driver "modesetting"
  Option "AccelMethod" "none"
EndSection
Section "InputDevice"
  Identifier "keyboard"
  Driver "evdev"
  Option "Device" "/dev/input/$keyboard"
EndSection
Section "InputDevice"
  Identifier "tablet"
  Driver "evdev"
  Option "Device" "/dev/input/$tablet"
EndSection
Section "Screen"
  Identifier "screen"
  Device "card"
EndSection
Section "ServerLayout"
  Identifier "layout"
  Screen "screen"
  InputDevice "keyboard" "CoreKeyboard"
  InputDevice "tablet" "CorePointer"
EndSection
EOF
Xorg :0 -config /run/xorg.conf -nolisten tcp -ac -noreset vt1 > /run/xorg.log 2>&1 &
until [ -S /tmp/.X11-unix/X0 ] && xset q > /dev/null 2>&1; do
  if ! kill -0 $!; then tail -n 40 /run/xorg.log > /dev/ttyS0; sleep 5; poweroff -f; fi
  sleep 0.2
done
xsetroot -solid '#336699'
openbox > /dev/null 2>&1 &
xterm -geometry 80x24+20+40 -xrm 'XTerm*cursorBlink: false' &
xcalc -geometry +700+60 &
echo "plain guest: the desktop is up" > /dev/ttyS0
while :; do sleep 3600; done
"""

SYSLINUX = """DEFAULT plain
PROMPT 0
TIMEOUT 0
LABEL plain
  LINUX /vmlinuz
  INITRD /initrd.img
  APPEND root=LABEL=plain quiet console=tty0 console=ttyS0 net.ifnames=0 mitigations=off \
tsc=reliable nowatchdog audit=0 panic=-1 vt.global_cursor_default=0
"""


class Missing(Exception):
    """A program that this machine lacks, or packages that cannot be had."""


def agentless_disk(data_dir: Path) -> Path:
    """The raw disk of the guest, made when it is not in the cache below `data_dir`.

    Raises:
        Missing: it cannot be made here, and why.
    """
    for program in ("mmdebstrap", "mke2fs", "mkfs.vfat", "mcopy", "syslinux"):
        if shutil.which(program, path=f"{os.environ['PATH']}:/usr/sbin:/sbin") is None:
            raise Missing(program)
    folder = data_dir / "cache" / "plain-guest"
    folder.mkdir(parents=True, exist_ok=True)
    disk = folder / f"{hashlib.sha256(Path(__file__).read_bytes()).hexdigest()[:16]}.raw"
    if disk.is_file():
        return disk
    for old in folder.glob("*.raw"):
        old.unlink()
    with tempfile.TemporaryDirectory(prefix=".making-", dir=folder) as scratch:
        made = _make(Path(scratch), data_dir / "cache" / "apt")
        made.rename(disk)
    return disk


def _make(scratch: Path, packages: Path) -> Path:
    root = scratch / "root"
    root.mkdir()
    _unpack(root, scratch, packages)
    release = next((root / "lib/modules").iterdir()).name
    kernel = (root / f"boot/vmlinuz-{release}").rename(scratch / "vmlinuz")
    modules = root / "lib/modules" / release
    _initrd(scratch, root, modules)
    _furnish(root, modules)
    shutil.rmtree(root / "lib/modules")
    shutil.rmtree(root / "boot")
    boot, system, disk = scratch / "boot.img", scratch / "root.img", scratch / "disk.raw"
    _boot_partition(boot, kernel, scratch / "initrd.img", scratch)
    used = sum(path.lstat().st_size for path in root.rglob("*") if path.is_file() and not path.is_symlink())
    with system.open("wb") as file:
        file.truncate((used * 5 // 4 + (64 << 20)) >> 20 << 20)
    _run("mke2fs", "-q", "-F", "-t", "ext4", "-L", LABEL, "-m", "0", "-O", "^has_journal", "-d", root, system)
    _assemble(disk, boot, system)
    return disk


def _run(*argv: str | Path) -> None:
    env = {**os.environ, "PATH": f"{os.environ['PATH']}:/usr/sbin:/sbin"}
    words = [str(word) for word in argv]
    done = subprocess.run(words, env=env, capture_output=True, text=True, timeout=300, check=False)
    if done.returncode != 0:
        raise Missing(f"{words[0]} failed: {done.stderr[-2000:]}")


def _unpack(root: Path, scratch: Path, packages: Path) -> None:
    """Packages as files, without running any of their scripts."""
    archives = "/var/cache/apt/archives"
    packages.mkdir(parents=True, exist_ok=True)
    tar = scratch / "root.tar"
    argv = [
        "mmdebstrap",
        f"--mode={'root' if os.geteuid() == 0 else 'unshare'}",
        "--variant=extract",
        "--format=tar",
        f"--include={','.join(PACKAGES)}",
        '--aptopt=APT::Install-Recommends "false"',
        '--aptopt=Acquire::Languages "none"',
        "--skip=download/empty",
        "--skip=essential/unlink",
        f'--setup-hook=mkdir -p "$1"{archives}',
        f"--setup-hook=sync-in {packages} {archives}",
        f"--customize-hook=sync-out {archives} {packages}",
        f'--customize-hook=rm -rf "$1"{archives}/*',
        SUITE,
        str(tar),
    ]
    if os.geteuid() == 0:
        argv = [word for word in argv if "sync-" not in word]
        argv[-2:-2] = [
            f'--setup-hook=cp -al {packages}/. "$1"{archives}/ || cp -a {packages}/. "$1"{archives}/',
            f'--customize-hook=cp -alnf "$1"{archives}/*.deb {packages}/ '
            f'|| cp -an "$1"{archives}/*.deb {packages}/; rm -rf "$1"{archives}/*',
        ]
    _run(*argv)
    _run("tar", "-C", root, *(f"--exclude={path}" for path in UNWANTED), "-xf", tar)
    tar.unlink()


def _depends(module: Path) -> list[str]:
    found = re.search(rb"\0depends=([^\0]*)\0", module.read_bytes())
    return [name for name in found.group(1).decode().split(",") if name] if found else []


def _closure(names: Iterable[str], modules: Path, done: dict[str, Path]) -> list[Path]:
    """The files of modules and of what they need, in the order of loading; those built in are left out."""
    files = {path.stem.replace("-", "_"): path for path in modules.rglob("*.ko")}
    order: list[Path] = []

    def visit(name: str) -> None:
        path = files.get(name.replace("-", "_"))
        if path is None or path.stem in done:
            return
        done[path.stem] = path
        for needed in _depends(path):
            visit(needed)
        order.append(path)

    for name in names:
        visit(name)
    return order


def _write(path: Path, text: str, mode: int = 0o644) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(mode)


def _initrd(scratch: Path, root: Path, modules: Path) -> None:
    """An initial RAM disk with busybox and the modules of the root file system."""
    tree = scratch / "initrd"
    (tree / "bin").mkdir(parents=True)
    shutil.copy2(root / "bin/busybox", tree / "bin/busybox")
    order = _closure(BOOT_MODULES, modules, {})
    (tree / "modules").mkdir()
    for path in order:
        shutil.copy2(path, tree / "modules" / path.name)
    _write(tree / "modules/order", "".join(f"{path.name}\n" for path in order))
    _write(tree / "init", BOOT_INIT, 0o755)
    (scratch / "initrd.img").write_bytes(_cpio(tree))


def _cpio(tree: Path) -> bytes:
    """The tree as a cpio archive of the kind that the kernel unpacks (newc)."""
    out = bytearray()

    def add(name: str, mode: int, data: bytes) -> None:
        fields = [len(out), mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(name) + 1, 0]
        out.extend(b"070701" + b"".join(b"%08X" % value for value in fields) + name.encode() + b"\0")
        out.extend(bytes(-len(out) % 4))
        out.extend(data)
        out.extend(bytes(-len(out) % 4))

    for path in sorted(tree.rglob("*")):
        name = str(path.relative_to(tree))
        if path.is_dir():
            add(name, stat.S_IFDIR | 0o755, b"")
        else:
            add(name, stat.S_IFREG | (path.stat().st_mode & 0o777), path.read_bytes())
    add("TRAILER!!!", 0, b"")
    return bytes(out)


def _furnish(root: Path, modules: Path) -> None:
    """What unpacked packages lack to be a system."""
    for folder in ("dev", "proc", "sys", "run", "tmp", "root", "usr/lib/plain"):
        (root / folder).mkdir(parents=True, exist_ok=True)
    order = _closure(
        DESKTOP_MODULES, modules, {path.stem: path for path in _closure(BOOT_MODULES, modules, {})}
    )
    for path in order:
        shutil.copy2(path, root / "usr/lib/plain" / path.name)
    _write(root / "usr/lib/plain/order", "".join(f"{path.name}\n" for path in order))
    (root / "sbin/init").unlink(missing_ok=True)
    _write(root / "sbin/init", INIT, 0o755)
    _write(root / "etc/passwd", "root:x:0:0:root:/root:/bin/sh\n")
    _write(root / "etc/group", "root:x:0:\ntty:x:5:\nvideo:x:44:\ninput:x:104:\n")
    for name in (
        "sh",
        "cat",
        "awk",
        "grep",
        "sleep",
        "mkdir",
        "mount",
        "ln",
        "insmod",
        "tail",
        "poweroff",
        "ls",
    ):
        path = root / "bin" / name
        if not path.exists() and not path.is_symlink():
            path.symlink_to("busybox")
    # An X server started by root needs no wrapper.
    (root / "usr/bin/X").unlink(missing_ok=True)


def _boot_partition(image: Path, kernel: Path, initrd: Path, scratch: Path) -> None:
    with image.open("wb") as file:
        file.truncate(BOOT_SECTORS * SECTOR)
    # The boot loader finds its partition by what its file system says of hidden sectors.
    _run("mkfs.vfat", "-F", "16", "-h", "2048", "-n", "BOOT", image)
    (scratch / "syslinux.cfg").write_text(SYSLINUX)
    _run("mcopy", "-i", image, kernel, "::/vmlinuz")
    _run("mcopy", "-i", image, initrd, "::/initrd.img")
    _run("mcopy", "-i", image, scratch / "syslinux.cfg", "::/syslinux.cfg")
    _run("syslinux", "--install", image)


def _assemble(disk: Path, boot: Path, system: Path) -> None:
    """Boot record, boot partition, root partition."""
    first = 2048
    second = first + BOOT_SECTORS
    sectors = system.stat().st_size // SECTOR
    record = bytearray(SECTOR)
    code = next(
        path
        for path in (Path("/usr/lib/syslinux/mbr/mbr.bin"), Path("/usr/lib/SYSLINUX/mbr.bin"))
        if path.exists()
    ).read_bytes()
    record[: len(code)] = code
    entries = ((0x80, 0x0E, first, BOOT_SECTORS), (0, 0x83, second, sectors))
    for index, (active, kind, start, count) in enumerate(entries):
        entry = struct.pack("<B3sB3sII", active, b"\xfe\xff\xff", kind, b"\xfe\xff\xff", start, count)
        record[446 + 16 * index : 462 + 16 * index] = entry
    record[510:] = b"\x55\xaa"
    with disk.open("wb") as file:
        file.write(record)
        file.truncate((second + sectors) * SECTOR)
    for image, start in ((boot, first), (system, second)):
        _run(
            "dd",
            f"if={image}",
            f"of={disk}",
            "bs=1M",
            f"seek={start >> 11}",
            "conv=notrunc,sparse",
            "status=none",
        )
