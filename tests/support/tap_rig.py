"""Taps of a test's own instance: a network that knows some names, and machines of the small snapshot."""

from __future__ import annotations

import ipaddress
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

from osgym_host.core.egress import parse_allowlist
from osgym_host.runtimes.egress import tools
from osgym_host.runtimes.egress.gate import LinkOptions
from osgym_host.runtimes.egress.links import link_of
from osgym_host.runtimes.egress.resolver import NameLookup
from osgym_qemu.cloning.parked_pool import ParkedPoolOptions
from osgym_qemu.network.tap import DEFAULT_LINKS, TapNetwork, table_name
from osgym_qemu.runner.process import ProcessLauncher
from osgym_qemu.runtime import QemuOptions, QemuRuntime
from tests.support.network_rig import ALLOWED, KNOWN_NAMES, World
from tests.support.runtime_kits import QemuKit

MARK = f"osgym-test-{os.getpid()}"


def make_network() -> TapNetwork:
    """A network of this test's instance, whose names are known."""
    allowed = parse_allowlist(ALLOWED)
    names = NameLookup(lambda name: KNOWN_NAMES.get(name, []))
    return TapNetwork(MARK, LinkOptions(allowed, names=names))


def left() -> list[str]:
    """Whatever of this test's instance is on the host."""
    tables = subprocess.run(["nft", "list", "tables"], capture_output=True, text=True, check=True).stdout
    found = [line for line in tables.splitlines() if table_name(MARK) in line]
    found += tools.find_namespaces(MARK)
    return found + [str(link) for link in tools.find_links(MARK, "osgym")]


def everything(places: World) -> tuple[str, ...]:
    """All addresses that answer on a host that forbids nothing, and the guest's gateway."""
    return (
        *(places.near, places.far, places.private, places.metadata, places.azure, places.host),
        *("10.0.2.2", "10.0.2.3", "198.18.0.0", "127.0.0.1"),
    )


def far_ends() -> list[str]:
    """The addresses of all machines' links at their far ends."""
    links = ipaddress.IPv4Network(DEFAULT_LINKS)
    found = [link_of(found.slot, links).guest_ip for found in tools.find_links(MARK, "osgym")]
    assert found
    return found


@dataclass
class TapKit(QemuKit):
    """Machines of the small snapshot, each with a tap."""

    def make(self, data_dir: Path, options: QemuOptions | None = None) -> QemuRuntime:
        folder = data_dir / "run" / "contract"
        return QemuRuntime(
            data_dir,
            "contract",
            lambda tree: ProcessLauncher(folder, tree=tree),
            make_network(),
            options or QemuOptions(parked=ParkedPoolOptions(target=0)),
            self.image,
        )
