"""A host behind a bastion: two real sshds, the second of which only the first can reach."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.support.waiting import until

from osgym_infra.links.access import SshAccess
from osgym_infra.links.errors import (
    ConnectionLost,
    FleetHostError,
    FleetHostUnreachable,
    HostKeyMismatch,
    LoginRefused,
)
from osgym_infra.links.link import check, write
from osgym_infra.links.ssh import SshLink

PORT = 22022
OURS, BASTION, INNER, HOST = "198.18.253.1", "198.18.253.2", "198.18.254.1", "198.18.254.2"
OTHER_KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIDxMUhWv/6bUWrDs6EYMvYCO2o4ZBIL9M4DpRyzYCdQy"
NEEDED = ("ip", "nsenter", "unshare", "sshd", "ssh-keygen")
LACKING = [name for name in NEEDED if shutil.which(name, path=f"{os.environ['PATH']}:/usr/sbin") is None]
LACKING += [] if os.geteuid() == 0 else ["root"]
pytestmark = [
    pytest.mark.skipif(bool(LACKING), reason=f"missing: {', '.join(LACKING)}"),
    pytest.mark.timeout(120),
]


def tool(*argv: str) -> str:
    """Runs a command that must succeed."""
    return subprocess.run(argv, capture_output=True, text=True, check=True, timeout=30).stdout


class Machine:
    """A network of its own, with an sshd in it."""

    def __init__(self, folder: Path, address: str) -> None:
        self.folder, self.address = folder, address
        folder.mkdir()
        self.network = subprocess.Popen(["unshare", "-n", "sleep", "infinity"])
        while os.readlink(f"/proc/{self.network.pid}/ns/net") == os.readlink("/proc/self/ns/net"):
            time.sleep(0.01)
        tool("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / "host"))
        self.sshd: subprocess.Popen[bytes] | None = None

    @property
    def public_key(self) -> str:
        return " ".join((self.folder / "host.pub").read_text().split()[:2])

    @property
    def log(self) -> str:
        return (self.folder / "log").read_text()

    def inside(self, *argv: str) -> list[str]:
        """A command that runs in its network."""
        return ["nsenter", "-t", str(self.network.pid), "-n", *argv]

    def link(self, name: str, address: str, peer: str, peer_address: str, other: list[str]) -> None:
        """A cable to another network; `other` is what enters that one."""
        tool(
            *other,
            "ip",
            "link",
            "add",
            peer,
            "type",
            "veth",
            "peer",
            "name",
            name,
            "netns",
            str(self.network.pid),
        )
        for enter, device, where in ((self.inside(), name, address), (other, peer, peer_address)):
            tool(*enter, "ip", "address", "add", f"{where}/30", "dev", device)
            tool(*enter, "ip", "link", "set", device, "up")

    def serve(self, login: Path, *lines: str) -> None:
        """Starts its sshd, with further lines of configuration; returns when it listens."""
        config = [
            f"ListenAddress {self.address}", f"Port {PORT}", f"HostKey {self.folder / 'host'}",
            "PidFile none",
            f"AuthorizedKeysFile {login}.pub", "StrictModes no", "UsePAM no", "PasswordAuthentication no",
            "PermitRootLogin yes", "UseDNS no", *lines,
        ]  # fmt: skip
        (self.folder / "config").write_text("\n".join(config) + "\n")
        Path("/run/sshd").mkdir(exist_ok=True)
        argv = ["/usr/sbin/sshd", "-D", "-f", str(self.folder / "config"), "-E", str(self.folder / "log")]
        self.sshd = subprocess.Popen(self.inside(*argv))
        end = time.monotonic() + 10
        listens = self.inside("ss", "-ltnH", f"sport = :{PORT}")
        while not tool(*listens):
            assert time.monotonic() < end and self.sshd.poll() is None, self.log
            time.sleep(0.02)

    def connections(self) -> int:
        """To its sshd, now."""
        return len(tool(*self.inside("ss", "-tnH", "state", "established", f"sport = :{PORT}")).splitlines())

    def stop(self) -> None:
        """Ends its sshd and all connections to it."""
        if self.sshd is not None:
            children = Path(f"/proc/{self.sshd.pid}/task/{self.sshd.pid}/children").read_text().split()
            self.sshd.kill()
            self.sshd.wait(10)
            for child in children:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(child), 9)
            self.sshd = None

    def close(self) -> None:
        self.stop()
        self.network.kill()
        self.network.wait(10)


@pytest.fixture(scope="module")
def machines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Machine, Machine, Path]]:
    """Bastion, host, and the private key that both let in."""
    folder = tmp_path_factory.mktemp("jump")
    with contextlib.ExitStack() as made:
        login = folder / "login"
        tool("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(login))
        bastion = Machine(folder / "bastion", BASTION)
        made.callback(bastion.close)
        host = Machine(folder / "host", HOST)
        made.callback(host.close)
        bastion.link("outer", BASTION, f"osgymj{os.getpid() % 10**6}", OURS, [])
        host.link("eth0", HOST, "inner", INNER, bastion.inside())
        # Three at a time get in: hosts that each came by a connection of their own would be refused.
        bastion.serve(login, "MaxStartups 3")
        host.serve(login, "MaxStartups 200")
        yield bastion, host, login


@pytest.fixture
def at(machines: tuple[Machine, Machine, Path]) -> SshAccess:
    """The host, by the bastion."""
    bastion, host, login = machines
    jump = SshAccess(BASTION, PORT, host_key=bastion.public_key, key_file=str(login))
    return SshAccess(HOST, PORT, host_key=host.public_key, key_file=str(login), jump=jump)


def jump_of(at: SshAccess) -> SshAccess:
    assert at.jump is not None
    return at.jump


async def test_commands_and_files_go_through_it(
    machines: tuple[Machine, Machine, Path], at: SshAccess, tmp_path: Path
) -> None:
    """The host sees the bastion; its own key is checked all the same; nothing stays open."""
    bastion, host, _ = machines
    transport = SshLink(at)
    await transport.connect()
    assert await check(transport, ["echo", "here"]) == "here\n"
    await write(transport, str(tmp_path / "file"), b"x" * 2**20)
    assert (tmp_path / "file").stat().st_size == 2**20
    assert f"Accepted publickey for root from {INNER}" in host.log
    await transport.close()
    stranger = SshLink(replace(at, host_key=OTHER_KEY))
    with pytest.raises(HostKeyMismatch, match="set its host_key in osgym:hosts"):
        await stranger.connect()
    await stranger.close()
    await until(lambda: bastion.connections() == 0)


async def test_many_hosts_share_one_connection_to_it(
    machines: tuple[Machine, Machine, Path], at: SshAccess
) -> None:
    """A server takes few logins at a time."""
    bastion, host, _ = machines
    transports = [SshLink(at) for _ in range(20)]
    await asyncio.gather(*(transport.connect() for transport in transports))
    assert (bastion.connections(), host.connections()) == (1, 20)
    answers = await asyncio.gather(*(check(transport, ["echo", "here"]) for transport in transports))
    assert answers == ["here\n"] * 20
    await asyncio.gather(*(transport.close() for transport in transports))
    await until(lambda: (bastion.connections(), host.connections()) == (0, 0))


async def test_what_is_wrong_with_it_is_said_by_name(
    machines: tuple[Machine, Machine, Path], at: SshAccess, tmp_path: Path
) -> None:
    """Which of the two it is, and what to set."""
    tool("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(tmp_path / "other"))
    jump = jump_of(at)
    by_jump: list[tuple[dict[str, Any], type[FleetHostError], str]] = [
        ({"host_key": OTHER_KEY}, HostKeyMismatch, "set its host_key in osgym:jump"),
        ({"key_file": str(tmp_path / "other")}, LoginRefused, "refuses the login"),
        ({"port": 9}, FleetHostUnreachable, "cannot be reached: Connection refused"),
    ]
    cases = [(replace(at, jump=replace(jump, **change)), kind, says) for change, kind, says in by_jump]
    cases += [(replace(at, port=9), FleetHostUnreachable, "cannot reach it: Connect(ion)? (failed|refused)")]
    for address, kind, says in cases:
        transport = SshLink(address)
        with pytest.raises(kind, match=says) as refused:
            await transport.connect()
        await transport.close()
        assert str(refused.value).startswith(f"host {address.name}: its jump host root@{BASTION}:")


async def test_after_the_bastion_was_away_all_goes_on(
    machines: tuple[Machine, Machine, Path], at: SshAccess
) -> None:
    """What ran is lost by name, the next connection is new; one that forwards nothing says so."""
    bastion, _, login = machines
    transport, another = SshLink(at), SshLink(at)
    await transport.connect()
    await another.connect()
    await asyncio.to_thread(bastion.stop)
    with pytest.raises(ConnectionLost):
        await check(transport, ["echo", "here"])
    bastion.serve(login, "AllowTcpForwarding no")
    with pytest.raises(
        FleetHostUnreachable, match="does not forward connections: set AllowTcpForwarding in its sshd"
    ):
        await transport.connect()
    await asyncio.to_thread(bastion.stop)
    bastion.serve(login)
    for one in (transport, another):
        await one.connect()
        assert await check(one, ["echo", "here"]) == "here\n"
        await one.close()
    await until(lambda: bastion.connections() == 0)
