"""Tools for links, namespaces and tables of this host: blocking, each with a deadline. Root only.

The tools are `ip` and `nft`, fed on their standard input. What has to happen inside a namespace is done
by a thread of its own that enters it and ends there, so no other thread is ever in the wrong network.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import subprocess
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from osgym_host.runtimes.base import RuntimeFault
from osgym_host.runtimes.egress.links import Link

TOOL_TIMEOUT_S = 30.0
NETNS_FOLDER = Path("/run/netns")

_CLONE_NEWNET = 0x40000000
_T = TypeVar("_T")


class NetworkFailed(RuntimeFault):
    """Failure to make, change or remove a connection; the message has the tool's output."""


@dataclass(frozen=True, slots=True)
class FoundLink:
    """Existing link of the instance: its slot, and the machine that its alias names."""

    slot: int
    machine: str


def run_tool(argv: list[str], text: str = "") -> str:
    """Run a tool with `text` as its input and return its output.

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
    """Run `ip` commands in order, up to the first that fails.

    Raises:
        NetworkFailed: One failed.
    """
    run_tool(["ip", "-batch", "-"], "\n".join(lines) + "\n")


def bring_up_link(link: Link) -> None:
    """Set the address of the host's end and bring it up."""
    no_ipv6 = Path(f"/proc/sys/net/ipv6/conf/{link.name}/disable_ipv6")
    if no_ipv6.exists():
        no_ipv6.write_text("1")
    ip_batch([f"address add {link.host_ip}/31 dev {link.name}", f"link set dev {link.name} up"])


def remove_link(link: Link) -> None:
    """Remove both ends of a link, if it exists.

    Raises:
        NetworkFailed: It exists and cannot be removed.
    """
    if Path(f"/sys/class/net/{link.name}").exists():
        try:
            ip_batch([f"link delete dev {link.name}"])
        except NetworkFailed:
            if Path(f"/sys/class/net/{link.name}").exists():  # else it ended with its namespace meanwhile
                raise


def find_links(mark: str, prefix: str) -> list[FoundLink]:
    """Return the links whose alias names the instance."""
    found = []
    for entry in _json(["ip", "-j", "-d", "link", "show", "type", "veth"]):
        name, alias = entry.get("ifname", ""), entry.get("ifalias", "")
        owner, slash, machine = alias.partition("/")
        if owner == mark and slash and name.startswith(prefix) and name[len(prefix) :].isdigit():
            found.append(FoundLink(int(name[len(prefix) :]), machine))
    return found


def find_namespaces(mark: str) -> list[str]:
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
    """Return other tables whose base chain at `hook` drops packets by default."""
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
        raise NetworkFailed(f"{argv[0]} did not print JSON: {exc}") from exc


def inside(namespace: Path, call: Callable[[], _T]) -> _T:
    """Run `call` in a thread inside the namespace, and return its result.

    Raises:
        NetworkFailed: The namespace cannot be entered, or a system call in it failed.
    """
    results: list[_T] = []
    failures: list[BaseException] = []

    def enter() -> None:
        try:
            with _opened(namespace) as fd:
                if _libc().setns(fd, _CLONE_NEWNET) != 0:
                    number = ctypes.get_errno()
                    raise OSError(number, os.strerror(number))
            results.append(call())
        except BaseException as exc:  # noqa: BLE001  # handed on to the caller
            failures.append(exc)

    thread = threading.Thread(target=enter, name=f"netns-{namespace.name}", daemon=True)
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
