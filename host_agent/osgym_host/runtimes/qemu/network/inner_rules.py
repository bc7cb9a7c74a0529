"""Rules of nftables in a machine's own namespace, the same for all machines. Pure.

Nothing leads in, but what comes in answer to a socket that the host agent made inside, and the guest's own
address leads out. Where it may go from there say the host's rules (`runtimes.egress.rules`).
"""

from __future__ import annotations

from osgym_host.runtimes.egress.links import Link
from osgym_host.runtimes.qemu.machine import GATEWAY_IP, GUEST_IP, GUEST_PORT

DNS_IP = "10.0.2.3"
"""Address of the guest's name server, as with user-mode networking."""


def namespace_table(link: Link) -> str:
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
