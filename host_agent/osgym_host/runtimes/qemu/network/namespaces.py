"""Network namespaces, links, taps and rules of this host: blocking calls, each with a deadline. Root only.

The tools are `ip` and `nft`, fed on their standard input. What has to happen inside a namespace is done
by a thread of its own that enters it and ends there, so no other thread is ever in the wrong network.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import json
import os
import struct
import subprocess
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from osgym_host.runtimes.qemu.machine import GATEWAY_IP, GUEST_IP, MAC
from osgym_host.runtimes.qemu.network.base import NetworkFailed
from osgym_host.runtimes.qemu.network.links import Link
from osgym_host.runtimes.qemu.network.rules import DNS_IP, namespace_table

TOOL_TIMEOUT_S = 30.0
NETNS_FOLDER = Path("/run/netns")

GATEWAY_MAC = "52:55:0a:00:02:02"
"""What user-mode networking answers for 10.0.2.2 (libslirp: 52:55 and the address): a guest that was
frozen with it in its table of neighbours goes on with it."""

_CLONE_NEWNET = 0x40000000
_TUNSETIFF = 0x400454CA
_IFF_TAP = 0x0002
_IFF_NO_PI = 0x1000
"""No IFF_VNET_HDR: as user-mode networking, so that one device state fits both."""
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class FoundLink:
    """A link of ours that is there: its slot, and the machine that its alias names."""

    slot: int
    machine: str


def run_tool(argv: list[str], text: str = "") -> str:
    """Run a tool with `text` as its input and return what it printed.

    Raises:
        NetworkFailed: It failed, is missing, or took too long.
    """
    try:
        done = subprocess.run(
            argv, input=text, capture_output=True, text=True, timeout=TOOL_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as exc:
        raise NetworkFailed(f"{argv[0]}: {exc}") from exc
    if done.returncode != 0:
        said = done.stderr.strip() or done.stdout.strip()
        raise NetworkFailed(f"{argv[0]} ended with {done.returncode}: {said[-800:]}")
    return done.stdout


def nft(script: str) -> None:
    """Apply rules, all or none.

    Raises:
        NetworkFailed: nft refused them.
    """
    run_tool(["nft", "-f", "-"], script)


def ip_batch(lines: list[str]) -> None:
    """Carry out `ip` commands in order; the first that fails ends it.

    Raises:
        NetworkFailed: One failed.
    """
    run_tool(["ip", "-batch", "-"], "\n".join(lines) + "\n")


def make_link(link: Link, namespace: str, alias: str) -> None:
    """Make the namespace and a link into it, not up yet.

    Raises:
        FileExistsError: The slot is somebody else's.
        NetworkFailed: It cannot be made; nothing of it is left.
    """
    if Path(f"/sys/class/net/{link.name}").exists():
        raise FileExistsError(link.name)
    try:
        ip_batch([f"netns add {namespace}"])
    except NetworkFailed as exc:
        if "File exists" in str(exc):  # what a killed host agent left is for `reap`
            raise FileExistsError(namespace) from exc
        raise
    try:
        ip_batch(
            [
                f"link add {link.name} type veth peer name up0 netns {namespace}",
                f"link set dev {link.name} alias {alias}",
            ]
        )
    except NetworkFailed as exc:
        with contextlib.suppress(NetworkFailed):
            ip_batch([f"netns delete {namespace}"])
        if "File exists" in str(exc):
            raise FileExistsError(link.name) from exc
        raise


def bring_up_link(link: Link) -> None:
    """Give the host's end its address and switch it on."""
    no_ipv6 = Path(f"/proc/sys/net/ipv6/conf/{link.name}/disable_ipv6")
    if no_ipv6.exists():
        no_ipv6.write_text("1")
    ip_batch([f"address add {link.host_ip}/31 dev {link.name}", f"link set dev {link.name} up"])


def set_up_namespace(link: Link, namespace: str) -> int:
    """Make tap, addresses and rules inside; return the descriptor of the tap, which lives as long as it.

    Raises:
        NetworkFailed: Something could not be made.
    """
    return inside(namespace, lambda: _set_up(link))


def set_rules(link: Link, namespace: str) -> None:
    """Replace the rules inside a machine's namespace in one step.

    Raises:
        NetworkFailed: They are refused; the old ones hold.
    """
    script = "add table ip osgym\ndelete table ip osgym\n" + namespace_table(link)
    inside(namespace, lambda: nft(script))


def _set_up(link: Link) -> int:
    for name in ("all", "default"):
        with contextlib.suppress(OSError):  # no IPv6 in this kernel
            Path(f"/proc/sys/net/ipv6/conf/{name}/disable_ipv6").write_text("1")
    Path("/proc/sys/net/ipv4/ip_forward").write_text("1")
    nft(namespace_table(link))
    tap = os.open("/dev/net/tun", os.O_RDWR | os.O_CLOEXEC)
    try:
        fcntl.ioctl(tap, _TUNSETIFF, struct.pack("16sH22x", b"tap0", _IFF_TAP | _IFF_NO_PI))
        ip_batch(
            [
                "link set dev lo up",
                f"link set dev tap0 address {GATEWAY_MAC}",
                f"address add {GATEWAY_IP}/24 dev tap0",
                f"address add {DNS_IP}/32 dev tap0",
                "link set dev tap0 up",
                f"neighbour replace {GUEST_IP} lladdr {MAC} dev tap0 nud permanent",
                f"address add {link.guest_ip}/31 dev up0",
                "link set dev up0 up",
                f"route add default via {link.host_ip}",
            ]
        )
    except BaseException:
        os.close(tap)
        raise
    return tap


def remove_link(link: Link, namespace: str) -> None:
    """Remove link and namespace, as far as they are there.

    Raises:
        NetworkFailed: One of them is there and cannot be removed.
    """
    if Path(f"/sys/class/net/{link.name}").exists():
        ip_batch([f"link delete dev {link.name}"])
    if (NETNS_FOLDER / namespace).exists():
        ip_batch([f"netns delete {namespace}"])


def find_links(mark: str, prefix: str) -> list[FoundLink]:
    """Return the links whose alias says that they are the instance's."""
    found = []
    for entry in _json(["ip", "-j", "-d", "link", "show", "type", "veth"]):
        name, alias = entry.get("ifname", ""), entry.get("ifalias", "")
        owner, slash, machine = alias.partition("/")
        if owner == mark and slash and name.startswith(prefix) and name[len(prefix) :].isdigit():
            found.append(FoundLink(int(name[len(prefix) :]), machine))
    return found


def find_namespaces(mark: str) -> list[str]:
    """Return names of the namespaces that are the instance's."""
    if not NETNS_FOLDER.is_dir():
        return []
    start = f"{mark}-"
    names = sorted(entry.name for entry in NETNS_FOLDER.iterdir())
    return [name for name in names if name.startswith(start) and name[len(start) :].isdigit()]


def host_addresses() -> list[tuple[str, str]]:
    """Return the IPv4 addresses of this host: interface, and address with prefix length."""
    return [
        (str(entry.get("ifname", "")), f"{address['local']}/{address['prefixlen']}")
        for entry in _json(["ip", "-j", "-4", "address", "show"])
        for address in entry.get("addr_info", ())
    ]


def dropping_tables(hook: str, own: str) -> list[str]:
    """Other tables whose base chain at `hook` drops what nobody accepts."""
    found: set[str] = set()
    for entry in _json(["nft", "-j", "list", "chains"]).get("nftables", ()):
        chain = entry.get("chain", {})
        if chain.get("hook") == hook and chain.get("policy") == "drop" and chain.get("table") != own:
            found.add(f"{chain['family']} {chain['table']}")
    return sorted(found)


def _json(argv: list[str]) -> Any:
    try:
        return json.loads(run_tool(argv) or "[]")
    except ValueError as exc:
        raise NetworkFailed(f"{argv[0]} printed no JSON: {exc}") from exc


def inside(namespace: str, call: Callable[[], _T]) -> _T:
    """Carry out `call` in a thread that is in the namespace, and hand on its result.

    Raises:
        NetworkFailed: The namespace cannot be entered, or a system call in it failed.
    """
    results: list[_T] = []
    failures: list[BaseException] = []

    def enter() -> None:
        try:
            with _opened(NETNS_FOLDER / namespace) as fd:
                if _libc().setns(fd, _CLONE_NEWNET) != 0:
                    number = ctypes.get_errno()
                    raise OSError(number, os.strerror(number))
            results.append(call())
        except BaseException as exc:  # noqa: BLE001  # handed on to the caller
            failures.append(exc)

    thread = threading.Thread(target=enter, name=f"netns-{namespace}", daemon=True)
    thread.start()
    thread.join()
    if failures:
        if isinstance(failures[0], OSError):
            raise NetworkFailed(f"in namespace {namespace}: {failures[0]}") from failures[0]
        raise failures[0]
    return results[0]


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[int]:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        yield fd
    finally:
        os.close(fd)


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)
