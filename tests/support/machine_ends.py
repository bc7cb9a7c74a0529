"""How tests end a virtual machine as its kernel would: nothing in its desktop can."""

from __future__ import annotations

import enum

from osgym_qemu.machine.machine import Machine


class MachineEnd(enum.StrEnum):
    """What a guest's kernel does to its machine, as a command of QEMU's monitor."""

    PANIC = "sendkey alt-sysrq-c"
    """The keys by which a person at a keyboard lets a kernel give up (`kernel.sysrq`)."""
    RESET = "o /b 0x64 0xfe"
    """The keyboard controller's line to the processor, by which kernels restart."""
    POWER_OFF = "o /w 0x604 0x2000"
    """The sleep register of ACPI's power management, at the address that the firmware gives it."""
    POWER_BUTTON = "system_powerdown"
    """The button, upon which init ends everything and switches off."""


async def end_from_inside(machine: Machine, end: MachineEnd) -> None:
    """Let the guest come to its end."""
    await machine.qmp.hmp(end)
