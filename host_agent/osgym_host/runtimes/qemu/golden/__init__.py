"""Golden snapshots: frozen files and RAM in memory that clones share, and templates they are made of."""

from osgym_host.runtimes.qemu.golden.overlay import Overlays
from osgym_host.runtimes.qemu.golden.ram_file import RamFileError, RamIdentity
from osgym_host.runtimes.qemu.golden.snapshot import (
    GoldenRamCache,
    GoldenSnapshot,
    golden_snapshot,
    opened_disks,
)
from osgym_host.runtimes.qemu.golden.template import FrozenTemplate, Template, TemplateFailed, trial_clone

__all__ = [
    "FrozenTemplate",
    "GoldenRamCache",
    "GoldenSnapshot",
    "Overlays",
    "RamFileError",
    "RamIdentity",
    "Template",
    "TemplateFailed",
    "golden_snapshot",
    "opened_disks",
    "trial_clone",
]
