"""The runtimes there are: the host's settings and doctor, the command line and the cost model read this."""

from __future__ import annotations

from osgym_protocol.codes import TextEnum


class RuntimeName(TextEnum):
    """How replicas run. A new runtime is a line here and a package of its name in `osgym_host.runtimes`.

    Attributes:
        boots_machines: Whether replicas are virtual machines, which need KVM on their host, and disks and
            snapshots beside the image.
    """

    boots_machines: bool

    LOCAL = "local", False
    QEMU = "qemu", True

    def __new__(cls, name: str, boots_machines: bool = False) -> RuntimeName:
        """Make a member whose value is the runtime's name."""
        made = str.__new__(cls, name)
        made._value_ = name
        made.boots_machines = boots_machines
        return made
