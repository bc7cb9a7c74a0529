"""A profile for virtual machines under KVM, put together from what was measured without it. Pure.

No machine with KVM was at hand. Memory, disk and frames of a virtual machine do not depend on what runs it,
so they are those of the emulated one; emulation keeps translated code besides, so its memory is rather too
much. CPU times are those of the namespace runtime, which runs the same desktop on the bare CPU, times
`VM_COST`.
`osgym fleet fit` on a machine with KVM replaces all of it.
"""

from __future__ import annotations

from dataclasses import replace

from osgym_infra.cost.model import QEMU
from osgym_infra.workloads.profile import DEFAULTS, Measured, Parameter, Profile

VM_COST = 1.1
"""CPU of the same work in a virtual machine over that outside; assumed. Google says of one more level of
nesting that it costs at least 10 %."""

OF_THE_CPU = (Parameter.IDLE_CORES, Parameter.STEP_CPU_S, Parameter.RESET_CPU_S)
OF_THE_PACE = (Parameter.THINK_S, Parameter.STEPS_PER_EPISODE, Parameter.TRAJECTORY_S)


def under_kvm(local: Profile, emulated: Profile) -> Profile:
    """The profile `desktop-qemu-kvm`: nothing in it was measured under KVM, and each parameter says so."""
    parameters: dict[Parameter, Measured] = {
        name: _said(row, f"assumed: {emulated.workload}, measured under emulation ({row.how})")
        for name, row in emulated.parameters.items()
        if name not in (*OF_THE_CPU, *OF_THE_PACE, Parameter.KNEE_REPLICAS)
    }
    for name in OF_THE_CPU:
        if row := local.parameters.get(name):
            slower = Measured(row.value * VM_COST, row.low * VM_COST, row.high * VM_COST, row.n, "")
            how = f"assumed: {VM_COST:g} times that of {local.workload} ({row.how})"
            parameters[name] = _said(slower, how)
    for name in OF_THE_PACE:
        if row := local.parameters.get(name):
            parameters[name] = _said(row, f"assumed: {local.workload} ({row.how})")
    return Profile(
        DEFAULTS[QEMU], max(local.measured_on, emulated.measured_on), QEMU,
        emulated.machine, emulated.image, (*emulated.sources, *local.sources), parameters,
        (
            f"assumed, not measured under KVM: memory, disk and frames of {emulated.workload} (image "
            f"{emulated.image}, emulated), CPU of {local.workload} (image {local.image}, namespaces) times "
            f"{VM_COST:g}",
        ),
        "kvm",
    )  # fmt: skip


def _said(row: Measured, how: str) -> Measured:
    return replace(row, how=how)
