"""One QEMU process: its arguments, its monitor, its launcher and its record."""

from osgym_host.runtimes.qemu.machine.argv import (
    BASE_FD,
    BASE_NODE,
    DISK_FILE_NODE,
    DISK_NODE,
    GATEWAY_IP,
    GUEST_IP,
    GUEST_PORT,
    IMAGE_FD,
    INHERITED_RAM,
    INHERITED_UEFI,
    MAC,
    QEMU,
    RAM_CONTROL_FD,
    RAM_FD,
    SCREEN_QMP_FD,
    UEFI_FD,
    Accel,
    Disk,
    DiskBus,
    FileConsole,
    Kernel,
    Launch,
    Nic,
    Ram,
    RingConsole,
    Shape,
    TapNet,
    UserNet,
    block_options,
    to_argv,
)
from osgym_host.runtimes.qemu.machine.host_checks import (
    QemuFacts,
    ask_qemu,
    check_host,
    choose_accel,
    choose_cpu,
    shape_fields,
    shape_of,
)
from osgym_host.runtimes.qemu.machine.kernel_trial import (
    BOOT_TIMEOUT_S,
    KernelBoot,
    boot_kernel,
    find_kernel,
    kvm_opens,
)
from osgym_host.runtimes.qemu.machine.launcher import (
    FoundProcess,
    Launcher,
    LaunchFailed,
    LaunchRequest,
    ProcessEnd,
    RunnerKind,
    VmProcess,
    memory_cap_mib,
)
from osgym_host.runtimes.qemu.machine.machine import (
    QMP_SOCKET,
    SCREEN_SOCKET,
    Machine,
    MachineFailed,
)
from osgym_host.runtimes.qemu.machine.namespace import (
    AnyNamespace,
    NetworkNamespace,
    namespace_of,
    try_to_make,
)
from osgym_host.runtimes.qemu.machine.qmp import EventStream, Qmp, QmpClosed, QmpError
from osgym_host.runtimes.qemu.machine.records import GuestReach, ReplicaFacts, VmPhase, VmRecord, VmRecords
from osgym_host.runtimes.qemu.machine.usage import disk_mib, measure_vm

# fmt: off
__all__ = [
    "BASE_FD", "BASE_NODE", "BOOT_TIMEOUT_S", "DISK_FILE_NODE", "DISK_NODE", "GATEWAY_IP", "GUEST_IP",
    "GUEST_PORT", "IMAGE_FD", "INHERITED_RAM", "INHERITED_UEFI", "MAC", "QEMU", "QMP_SOCKET",
    "RAM_CONTROL_FD", "RAM_FD", "SCREEN_QMP_FD", "SCREEN_SOCKET", "UEFI_FD", "Accel", "AnyNamespace",
    "Disk", "DiskBus", "EventStream", "FileConsole", "FoundProcess", "GuestReach", "Kernel", "KernelBoot",
    "Launch", "LaunchFailed", "LaunchRequest", "Launcher", "Machine", "MachineFailed",
    "NetworkNamespace", "Nic", "ProcessEnd", "QemuFacts", "Qmp", "QmpClosed", "QmpError", "Ram",
    "ReplicaFacts", "RingConsole", "RunnerKind", "Shape", "TapNet", "UserNet", "VmPhase", "VmProcess",
    "VmRecord", "VmRecords", "ask_qemu",
    "block_options", "boot_kernel", "check_host", "choose_accel", "choose_cpu", "disk_mib", "find_kernel",
    "kvm_opens", "measure_vm", "memory_cap_mib", "namespace_of", "shape_fields", "shape_of", "to_argv",
    "try_to_make",
]
# fmt: on
