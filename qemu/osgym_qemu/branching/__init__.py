"""Branch points of running machines: taken, kept on disk, exported, restored in children."""

from osgym_qemu.branching.point_store import BranchChild, BranchPointStore
from osgym_qemu.branching.point_taker import BranchSource
from osgym_qemu.branching.ram_native import RamControl, RamLibrary, RamLibraryLoader

__all__ = ["BranchChild", "BranchPointStore", "BranchSource", "RamControl", "RamLibrary", "RamLibraryLoader"]
