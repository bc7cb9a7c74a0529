"""A machine as somebody has it who begins with the documentation: plain Debian, a user whose sudo asks.

On `SystemdHost`: a real systemd, a real sudo. It can be given this machine's way to packages of Debian and
Python, so that commands of a page are run as they stand there, and nothing of what they make exists before.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import select
import shutil
import subprocess
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.support import ROOT
from tests.support.ssh_hosts import tool
from tests.support.systemd_host import SystemdHost, remove

USER = "alice"
HOME = f"/home/{USER}"
ENGINE = ("pulumi", "pulumi-language-python", "pulumi-language-python-exec", "pulumi-resource-pulumi-python")
TRUST = ("etc/ssl/certs/ca-certificates.crt", "etc/pip.conf", "etc/resolv.conf", "etc/apt/apt.conf.d")
"""How this machine reaches packages: that is its administrator's, and no part of a page."""


@dataclass
class FreshMachine(SystemdHost):
    """One such machine.

    Attributes:
        password: of `USER`, who may use sudo with it.
    """

    in_memory: bool = False
    password: str = ""
    number: int = 0

    def install(self) -> None:
        """Debian, with a user who may use sudo as the first user of an installation may."""
        super().install()
        self.password = secrets.token_hex(8)
        self.number = secrets.randbelow(4000)
        for path in TRUST:
            source = Path("/") / path
            target = self.root / path
            target.parent.mkdir(parents=True, exist_ok=True)
            if source.is_dir():
                shutil.copytree(source, target, dirs_exist_ok=True)
            elif source.exists():
                shutil.copyfile(source, target)
        (self.root / "etc/hosts").write_text(f"127.0.0.1 localhost {os.uname().nodename}\n")
        # What Debian's installer does for the first user.
        tool("chroot", str(self.root), "useradd", "-m", "-s", "/bin/bash", "-G", "sudo", USER)
        subprocess.run(
            ["chroot", str(self.root), "chpasswd"], input=f"{USER}:{self.password}\n", text=True, check=True
        )

    def give_engine(self) -> None:
        """Puts the `pulumi` command there, which the page says is installed apart."""
        for name in ENGINE:
            if found := shutil.which(name):
                shutil.copy(found, self.root / "usr/local/bin" / name)

    def give_tree(self) -> None:
        """Puts this repository into the user's home, as a clone is, and their own."""
        listed = tool("git", "-C", str(ROOT), "ls-files", "-co", "--exclude-standard", "-z")
        target = self.root / HOME[1:] / "osgym"
        for name in filter(None, listed.split("\0")):
            if (source := ROOT / name).is_symlink() or source.is_file():
                (target / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(source, target / name, follow_symlinks=False)
        tool("chroot", str(self.root), "chown", "-R", f"{USER}:{USER}", HOME)

    def connect(self) -> None:
        """Lets it reach packages as this machine does; what comes from there is answered only."""
        assert self.init is not None
        link, mine, its = f"osgym{self.number}", *_addresses(self.number)
        tool("ip", "link", "add", link, "type", "veth", "peer", "name", "eth0", "netns", str(self.init.pid))
        tool("ip", "address", "add", f"{mine}/30", "dev", link)
        tool("ip", "link", "set", link, "up")
        self.inside(
            f"ip address add {its}/30 dev eth0 && ip link set eth0 up && ip route add default via {mine}"
        )
        self._forwarded = Path("/proc/sys/net/ipv4/ip_forward").read_text()
        Path("/proc/sys/net/ipv4/ip_forward").write_text("1")
        rules = (
            f"add table ip {link}\nadd chain ip {link} out {{ type nat hook postrouting priority 100; }}\n"
        )
        rules += f"add rule ip {link} out ip saddr {its} masquerade\n"
        subprocess.run(["nft", "-f", "-"], input=rules, text=True, check=True, timeout=30)

    def disconnect(self) -> None:
        """Takes that back. Idempotent."""
        link = f"osgym{self.number}"
        for argv in (["nft", "delete", "table", "ip", link], ["ip", "link", "delete", link]):
            subprocess.run(argv, capture_output=True, check=False, timeout=30)
        if (former := getattr(self, "_forwarded", "")) == "0\n" and not _others_forward():
            Path("/proc/sys/net/ipv4/ip_forward").write_text(former)

    def as_user(self, script: str, answers: Mapping[str, str], timeout_s: float) -> tuple[int, str]:
        """Runs a script of bash as the user at a terminal; returns its exit code and what was shown.

        Args:
            answers: by regular expression of what is asked, what is typed. Asked twice, it is typed twice.
        """
        path = self.root / HOME[1:] / "typed.sh"
        path.write_text(script)
        path.chmod(0o755)
        argv = ["nsenter", "-t", self._first_process(), "-m", "-p", "-n", "-u", "-i", "-C", "-r", "-w"]
        argv += ["env", "-i", "TERM=xterm", "LANG=C.UTF-8", "PATH=/usr/sbin:/usr/bin:/sbin:/bin"]
        argv += ["runuser", "-l", USER, "-c"]
        argv += [f"script -qefc 'stty cols 200 rows 50; bash {HOME}/typed.sh' /dev/null"]
        return _answered(argv, answers, timeout_s)


def _addresses(number: int) -> tuple[str, str]:
    """Our end of a link, and the other one (RFC 2544's network for tests)."""
    first = f"198.19.{number // 64}.{number % 64 * 4}".rpartition(".")
    return f"{first[0]}.{int(first[2]) + 1}", f"{first[0]}.{int(first[2]) + 2}"


def _others_forward() -> bool:
    """Whether another test's machine is connected like this."""
    listed = subprocess.run(["nft", "list", "tables"], capture_output=True, text=True, check=False).stdout
    return re.search(r"table ip osgym\d+", listed) is not None


def _answered(argv: list[str], answers: Mapping[str, str], timeout_s: float) -> tuple[int, str]:
    process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    assert process.stdin is not None and process.stdout is not None
    end = time.monotonic() + timeout_s
    shown, seen = "", 0
    try:
        while True:
            left = end - time.monotonic()
            assert left > 0, f"not within {timeout_s:g} s:\n{shown[-8000:]}"
            if not select.select([process.stdout], [], [], left)[0]:
                continue
            data = os.read(process.stdout.fileno(), 1 << 16)
            if not data:
                return process.wait(30), shown
            shown += data.decode("utf-8", "replace")
            for asked, typed in answers.items():
                if found := re.search(asked, shown[seen:]):
                    seen += found.end()
                    process.stdin.write(typed.encode())
                    process.stdin.flush()
    finally:
        if process.poll() is None:
            process.kill()
        process.stdin.close()
        process.stdout.close()
        process.wait(30)


@contextlib.contextmanager
def fresh_machine(folder: Path, *shared: Path) -> Iterator[FreshMachine]:
    """A machine that runs, without network; it and all of it is gone afterwards.

    Args:
        shared: folders of this machine that are there, too, for everybody.
    """
    made = FreshMachine(folder / "fresh", shared=tuple(dict.fromkeys(shared)))
    try:
        made.install()
        for parent in {parent for path in shared for parent in path.parents} - {Path("/")}:
            (made.root / str(parent)[1:]).mkdir(parents=True, exist_ok=True)
            (made.root / str(parent)[1:]).chmod(0o755)
        assert made.boot() in ("running", "degraded")
        yield made
    finally:
        made.disconnect()
        remove(made)
