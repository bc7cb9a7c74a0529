"""Networks of virtual machines: user-mode networking, or a tap in a namespace of its own."""

from osgym_host.runtimes.egress.tools import NetworkFailed
from osgym_host.runtimes.qemu.network.base import FoundGuest, Network
from osgym_host.runtimes.qemu.network.tap import TapNetwork
from osgym_host.runtimes.qemu.network.user import UserNetwork

__all__ = ["FoundGuest", "Network", "NetworkFailed", "TapNetwork", "UserNetwork"]
