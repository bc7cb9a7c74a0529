"""Namespaces, links, taps and inner rules of machines: blocking calls, each with a deadline. Root only."""

from __future__ import annotations

import contextlib
import fcntl
import os
import struct
from pathlib import Path

from osgym_host.runtimes.egress.links import Link
from osgym_host.runtimes.egress.tools import NETNS_FOLDER, NetworkFailed, inside, ip_batch, nft
from osgym_qemu.machine.argv import GATEWAY_IP, GUEST_IP, GUEST_PORT, MAC

GATEWAY_MAC = "52:55:0a:00:02:02"
"""MAC address of 10.0.2.2 in user-mode networking (libslirp: 52:55 and the address): a guest that was
frozen with it in its table of neighbours goes on with it."""

_TUNSETIFF = 0x400454CA
_IFF_TAP = 0x0002
_IFF_NO_PI = 0x1000
"""Flag without IFF_VNET_HDR: as in user-mode networking, so that one device state fits both."""
DNS_IP = "10.0.2.3"
"""Address of the guest's name server, as with user-mode networking."""


def make_link(link: Link, namespace: str, alias: str) -> None:
    """Make the namespace and a link into it, not up yet.

    Raises:
        FileExistsError: The slot is in use by others.
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


def set_up_namespace(link: Link, namespace: str) -> int:
    """Make tap, addresses and rules inside; return the tap's descriptor, which keeps the tap.

    Raises:
        NetworkFailed: Something could not be made.
    """
    return inside(NETNS_FOLDER / namespace, lambda: _set_up(link))


def set_rules(link: Link, namespace: str) -> None:
    """Replace the rules inside a machine's namespace in one step.

    Raises:
        NetworkFailed: They are refused; the old ones hold.
    """
    script = "add table ip osgym\ndelete table ip osgym\n" + namespace_table(link)
    inside(NETNS_FOLDER / namespace, lambda: nft(script))


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


def remove_namespace(namespace: str) -> None:
    """Remove a machine's namespace if it is there.

    Raises:
        NetworkFailed: It exists and cannot be removed.
    """
    if (NETNS_FOLDER / namespace).exists():
        ip_batch([f"netns delete {namespace}"])


def namespace_table(link: Link) -> str:
    """Return the rules of nftables in a machine's own namespace.

    Nothing leads in, but what comes in answer to a socket that the host agent made inside, and the guest's
    own address leads out. Where it may go from there say the host's rules (`runtimes.egress.rules`).
    """
    return f"""\
table ip osgym {{
  chain lead {{
    type nat hook prerouting priority dstnat; policy accept;
    iifname "tap0" ip daddr {DNS_IP} udp dport 53 dnat to {link.host_ip}
  }}
  chain disguise {{
    type nat hook postrouting priority srcnat; policy accept;
    oifname "up0" snat to {link.guest_ip}
    oifname "tap0" snat to {GATEWAY_IP}
  }}
  chain forward {{
    type filter hook forward priority filter; policy drop;
    ct state invalid drop
    iifname "up0" oifname "tap0" ct state established,related accept
    iifname "tap0" oifname "up0" ip saddr {GUEST_IP} accept
  }}
  chain input {{
    type filter hook input priority filter; policy drop;
    iifname "up0" ct state established,related accept
    iifname "tap0" tcp sport {GUEST_PORT} ct state established accept
    iifname "tap0" icmp type echo-request limit rate 10/second accept
  }}
}}
"""
