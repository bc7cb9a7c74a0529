"""Rules of nftables as text, in tables of our own only. Pure.

On the host there is one table per instance. What comes from a machine's link may go out only as its slot's
chain says, reaches nothing of the host but its resolver, and nothing may open a connection to a machine.
Rules inside a machine's own namespace are the runtime's.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from osgym_host.core.egress import NEVER, PRIVATE
from osgym_host.runtimes.base import Egress
from osgym_host.runtimes.egress.links import LINK_PREFIX, Link

MAX_FLOWS = 1024
"""Largest number of connections of one machine, so that it cannot fill the host's connection table."""

MAX_LEARNT = 1024
"""Largest number of addresses of allowed names that one machine may collect."""


def host_table(table: str, networks: Sequence[str]) -> str:
    """Return the commands that make the instance's table anew, without machines."""
    allowed = f"elements = {{ {', '.join(networks)} }};" if networks else ""
    return f"""\
table inet {table} {{
}}
delete table inet {table}
table inet {table} {{
  set links {{ type ifname; }}
  set sources {{ type ifname . ipv4_addr; }}
  set addresses {{ type ipv4_addr; }}
  set resolvers {{ type ifname . ipv4_addr; }}
  set flows {{ type ipv4_addr; size 65535; flags dynamic; }}
  set never {{ type ipv4_addr; flags interval; elements = {{ {", ".join(NEVER)} }}; }}
  set private {{ type ipv4_addr; flags interval; elements = {{ {", ".join(PRIVATE)} }}; }}
  set networks {{ type ipv4_addr; flags interval; {allowed} }}
  map policies {{ type ifname : verdict; }}

  chain arrived {{
    type filter hook prerouting priority raw; policy accept;
    iifname @links meta nfproto ipv6 drop
    iifname @links iifname . ip saddr != @sources drop
  }}
  chain input {{
    type filter hook input priority filter - 10; policy accept;
    iifname @links jump to_host
  }}
  chain to_host {{
    ct state established,related accept
    iifname . ip daddr @resolvers udp dport 53 accept
    drop
  }}
  chain forward {{
    type filter hook forward priority filter - 10; policy accept;
    iifname @links jump leaving
    oifname @links jump entering
  }}
  chain leaving {{
    oifname "{LINK_PREFIX}*" drop
    ip daddr @never drop
    ct state invalid drop
    ct state new add @flows {{ ip saddr ct count over {MAX_FLOWS} }} drop
    iifname vmap @policies
    drop
  }}
  chain entering {{
    ct state established,related accept
    drop
  }}
  chain output {{
    type filter hook output priority filter - 10; policy accept;
    oifname @links jump entering
  }}
  chain disguise {{
    type nat hook postrouting priority srcnat; policy accept;
    oifname != "{LINK_PREFIX}*" ip saddr @addresses masquerade
  }}
}}
"""


def add_slot(table: str, link: Link) -> str:
    """Return the commands that add a link which reaches nothing yet, and clear the slot's former rules."""
    return f"""\
add chain inet {table} out{link.slot}
flush chain inet {table} out{link.slot}
add set inet {table} learnt{link.slot} {{ type ipv4_addr; size {MAX_LEARNT}; }}
flush set inet {table} learnt{link.slot}
add element inet {table} policies {{ "{link.name}" : jump out{link.slot} }}
add element inet {table} sources {{ "{link.name}" . {link.guest_ip} }}
add element inet {table} addresses {{ {link.guest_ip} }}
add element inet {table} links {{ "{link.name}" }}
"""


def remove_slot(table: str, link: Link) -> str:
    """Return the commands that remove all rules of a slot, whose link is gone."""
    named = {
        "resolvers": f'{{ "{link.name}" . {link.host_ip} }}',
        "policies": f'{{ "{link.name}" }}',
        "sources": f'{{ "{link.name}" . {link.guest_ip} }}',
        "addresses": f"{{ {link.guest_ip} }}",
        "links": f'{{ "{link.name}" }}',
    }
    # `delete` fails where there is nothing, so everything is added before.
    lines = [f"add table inet {table}", add_slot(table, link).rstrip()]
    lines += [f"add element inet {table} resolvers {named['resolvers']}"]
    lines += [f"delete element inet {table} {name} {element}" for name, element in named.items()]
    lines += [f"delete chain inet {table} out{link.slot}", f"delete set inet {table} learnt{link.slot}"]
    return "\n".join(lines) + "\n"


def set_policy(table: str, link: Link, egress: Egress) -> str:
    """Return the commands that set the egress policy of a link, in one step."""
    chain = f"out{link.slot}"
    lines = [f"flush chain inet {table} {chain}", f"flush set inet {table} learnt{link.slot}"]
    if egress is Egress.OPEN:
        lines += [f"add rule inet {table} {chain} ip daddr @private drop"]
        lines += [f"add rule inet {table} {chain} accept"]
    elif egress is Egress.ALLOWLIST:
        lines += [f"add rule inet {table} {chain} ip daddr @networks accept"]
        lines += [f"add rule inet {table} {chain} ip daddr @learnt{link.slot} accept"]
    resolver = f'inet {table} resolvers {{ "{link.name}" . {link.host_ip} }}'
    # `delete` fails where there is none, so it is added before.
    lines += [f"add element {resolver}"]
    if egress is Egress.NONE:
        lines += [f"delete element {resolver}"]
    return "\n".join(lines) + "\n"


def learn(table: str, link: Link, addresses: Iterable[str]) -> str:
    """Return the commands that allow a link's machine the addresses of an allowed name."""
    return f"add element inet {table} learnt{link.slot} {{ {', '.join(addresses)} }}\n"
