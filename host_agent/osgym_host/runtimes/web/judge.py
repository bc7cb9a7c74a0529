"""Judgement of targets by the egress policy; connections go to the judged addresses only."""

from __future__ import annotations

import ipaddress
import socket
from dataclasses import dataclass, field

from osgym_host.core.egress import NEVER, Allowlist, public_addresses
from osgym_host.core.special_addresses import Kind, kind_of
from osgym_host.runtimes.base import Egress
from osgym_host.runtimes.egress.resolver import NameLookup
from osgym_host.runtimes.web.heads import Refused, Target

_NEVER = tuple(ipaddress.IPv4Network(network) for network in NEVER)


@dataclass(frozen=True, slots=True)
class Judge:
    """Egress policy of an instance.

    Attributes:
        names: Resolver, the only one, so that connections go to the judged addresses.
    """

    egress: Egress
    allowlist: Allowlist
    names: NameLookup
    networks: tuple[ipaddress.IPv4Network, ...] = field(default=())

    @classmethod
    def of(cls, egress: Egress, allowlist: Allowlist, names: NameLookup) -> Judge:
        return cls(egress, allowlist, names, tuple(map(ipaddress.IPv4Network, allowlist.networks)))

    async def addresses(self, target: Target) -> list[str]:
        """Return the IPv4 addresses at which a target may be reached; at least one.

        Raises:
            Refused: The policy does not allow the target, or its name does not exist.
        """
        if target.is_address:
            self._check_address(target.host)
            return [target.host]
        if self.egress is Egress.NONE or (
            self.egress is Egress.ALLOWLIST and not self.allowlist.has_name(target.host)
        ):
            raise Refused(403, "egress_refused", f"{target.host} is not in this host's allowlist")
        try:
            found = await self.names.find(target.host)
        except (OSError, TimeoutError, UnicodeError):
            raise Refused(502, "unreachable", f"the name {target.host} could not be resolved") from None
        public = [address for address in found if _is_public(address)]
        if not public:
            raise Refused(403, "egress_refused", f"{target.host} is not a host on the public internet")
        return public

    def _check_address(self, text: str) -> None:
        address = ipaddress.IPv4Address(text)
        if self.egress is Egress.OPEN:
            allowed = _is_public(text)
        elif self.egress is Egress.ALLOWLIST:
            allowed = any(address in network for network in self.networks)
        else:
            allowed = False
        if not allowed or any(address in network for network in _NEVER) or is_own(text):
            raise Refused(403, "egress_refused", f"{text} must not be reached from a desktop")


def _is_public(address: str) -> bool:
    """Return whether the address is of the public internet, and not this host's."""
    return bool(public_addresses([address])) and kind_of(address) is Kind.PUBLIC and not is_own(address)


def is_own(address: str) -> bool:
    """Return whether an IPv4 address is this host's: then the kernel answers from that same address.

    Nothing is sent. Addresses that a gateway outside translates to this host's cannot be told.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as probe:
        try:
            probe.connect((address, 9))
        except OSError:
            return False  # no way there at all
        return bool(probe.getsockname()[0] == address)
