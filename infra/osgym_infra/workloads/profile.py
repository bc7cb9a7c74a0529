"""Measured workload profiles: needs of a replica with intervals, and the sources of the figures."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from datetime import date
from enum import StrEnum
from importlib import resources
from pathlib import Path
from typing import Any

from osgym_infra.catalogue.rows import PriceSource
from osgym_infra.cost.model import LOCAL, QEMU, RUNTIME_NAME, ReplicaNeeds, Rest, boots_machines
from osgym_infra.errors import BadInput

SCHEMA = 1
MIB_PER_GIB = 1024.0
DEFAULT = "desktop-local"
"""The profile that is planned with when nothing is named."""
DEFAULTS = {LOCAL: DEFAULT, QEMU: "desktop-qemu-kvm"}
"""The profile that is planned with when only the runtime is named."""
EMULATED = "desktop-qemu-tcg"
"""The same for virtual machines that no KVM runs."""
TCG = "tcg"
"""QEMU's emulation, as the benchmarks call what ran the machines."""


class Parameter(StrEnum):
    """Parameter of a profile; the names carry the units."""

    WORKING_SET_MIB = "working_set_mib"
    SHARED_FRACTION = "shared_fraction"
    PRIVATE_MIB = "private_mib"
    OVERHEAD_MIB = "overhead_mib"
    IDLE_CORES = "idle_cores"
    STEP_CPU_S = "step_cpu_s"
    THINK_S = "think_s"
    OVERLAY_MIB = "overlay_mib"
    FRAME_KB = "frame_kb"
    STEPS_PER_EPISODE = "steps_per_episode"
    RESET_CPU_S = "reset_cpu_s"
    TRAJECTORY_S = "trajectory_s"
    THREADS = "threads"
    RESTING_MIB = "resting_mib"
    WAKE_CPU_S = "wake_cpu_s"
    KNEE_REPLICAS = "knee_replicas"


LESS_IS_WORSE = {
    Parameter.SHARED_FRACTION,
    Parameter.THINK_S,
    Parameter.STEPS_PER_EPISODE,
    Parameter.KNEE_REPLICAS,
}
"""Parameters whose low end costs more; of all others it is the high end."""

REQUIRED = (Parameter.WORKING_SET_MIB,)

MOST_SHARED = 0.99
"""s above this is a measuring error: something of a replica is always its own."""


class Bound(StrEnum):
    """End of the intervals that a plan uses."""

    PESSIMISTIC = "pessimistic"
    MEAN = "mean"
    OPTIMISTIC = "optimistic"


@dataclass(frozen=True, slots=True)
class Measured:
    """Value of a parameter, its 95 % interval, number of observations, and how it was found."""

    value: float
    low: float
    high: float
    n: int
    how: str

    def at(self, bound: Bound, less_is_worse: bool) -> float:
        """Return the end of the interval for `bound`."""
        if bound is Bound.MEAN:
            return self.value
        return self.low if (bound is Bound.PESSIMISTIC) == less_is_worse else self.high


@dataclass(frozen=True, slots=True)
class Profile:
    """Measured workload; `sources` are the files of raw series it was fitted from.

    `accelerator` is what ran the virtual machines, `kvm` or `tcg` (emulation); empty for namespaces.
    """

    workload: str
    measured_on: date
    runtime: str
    machine: str
    image: str
    sources: tuple[str, ...]
    parameters: Mapping[Parameter, Measured]
    notes: tuple[str, ...] = ()
    accelerator: str = ""

    @property
    def steps(self) -> bool:
        """Whether somebody steps its desktops."""
        return Parameter.STEP_CPU_S in self.parameters

    @property
    def emulated(self) -> bool:
        """Whether its CPU times are those of virtual machines without KVM."""
        return self.accelerator == TCG

    def value(self, parameter: Parameter, bound: Bound, default: float = 0.0) -> float:
        """Return a parameter at one end of its interval; `default` where it was not measured."""
        found = self.parameters.get(parameter)
        return default if found is None else found.at(bound, parameter in LESS_IS_WORSE)

    def replica(self, bound: Bound = Bound.PESSIMISTIC) -> ReplicaNeeds:
        """Return the model's needs of a replica, at one end of all intervals at once.

        Where `private_mib` (what each further replica takes, R_ws·(1 − s) + o) was measured itself, s
        follows from it at the same end, since it is what the plan rests on; the ends of s alone would count
        the same error twice.
        """
        steps = self.value(Parameter.STEPS_PER_EPISODE, bound, 15.0)
        working_set = self.value(Parameter.WORKING_SET_MIB, bound)
        shared = self.value(Parameter.SHARED_FRACTION, bound)
        overhead = self.value(Parameter.OVERHEAD_MIB, bound)
        if Parameter.PRIVATE_MIB in self.parameters:
            private = self.value(Parameter.PRIVATE_MIB, bound)
            working_set = max(working_set, private - overhead)
            shared = min(MOST_SHARED, max(0.0, 1 - (private - overhead) / working_set))
        return ReplicaNeeds(
            working_set_gib=working_set / MIB_PER_GIB,
            shared_fraction=shared,
            overhead_gib=overhead / MIB_PER_GIB,
            idle_cores=self.value(Parameter.IDLE_CORES, bound),
            step_cpu_s=self.value(Parameter.STEP_CPU_S, bound),
            reset_cpu_s=self.value(Parameter.RESET_CPU_S, bound),
            think_s=self.value(Parameter.THINK_S, bound),
            overlay_gib=self.value(Parameter.OVERLAY_MIB, bound) / MIB_PER_GIB,
            steps_per_episode=steps,
            frame_mb=self.value(Parameter.FRAME_KB, bound) / 1000,
            threads=self.value(Parameter.THREADS, bound),
        )

    def rest(self, bound: Bound = Bound.PESSIMISTIC) -> Rest:
        """Return what a replica needs that rests between steps, at one end of all intervals at once.

        Raises:
            BadInput: The profile was measured without rest.
        """
        needed = {Parameter.RESTING_MIB, *([Parameter.WAKE_CPU_S] if self.steps else [])}
        if not needed <= self.parameters.keys():
            raise BadInput(
                "--rest",
                f"the profile {self.workload} has no figures of rest",
                f"Fit a series with rest into it, or plan with {DEFAULT}",
            )
        resting_gib = self.value(Parameter.RESTING_MIB, bound) / MIB_PER_GIB
        return Rest(resting_gib, self.value(Parameter.WAKE_CPU_S, bound))

    def remarks(self, runtime: str) -> tuple[str, ...]:
        """Return what a plan has to say of the profile: another runtime, emulation, assumptions."""
        found = []
        if runtime != self.runtime:
            found.append(
                f"{self.workload} was measured with the {self.runtime} runtime; a replica of {runtime} needs "
                "other memory and CPU: calibrate with its own series, or give --replica-ram-gib and --shared"
            )
        if self.emulated:
            found.append(
                f"{self.workload} was measured under emulation (TCG, no KVM): a step takes many times the CPU"
            )
        return (*found, *(f"{self.workload}: {note}" for note in self.notes))

    def source(self) -> PriceSource:
        """Return the profile as a dated source, for the answer's footer."""
        return PriceSource(f"workload profile {self.workload} ({self.runtime})", self.measured_on)

    def to_json(self) -> str:
        data = {
            "schema": SCHEMA, "workload": self.workload, "measured_on": self.measured_on.isoformat(),
            "runtime": self.runtime, **({"accelerator": self.accelerator} if self.accelerator else {}),
            "machine": self.machine, "image": self.image,
            "sources": list(self.sources), "notes": list(self.notes),
            "parameters": {
                p.value: {k: _rounded(v) for k, v in asdict(self.parameters[p]).items()}
                for p in Parameter if p in self.parameters
            },
        }  # fmt: skip
        return json.dumps(data, indent=1, ensure_ascii=False) + "\n"


def _rounded(value: Any) -> Any:
    return float(f"{value:.6g}") if isinstance(value, float) else value


def from_json(text: str, name: str) -> Profile:
    """Parse the JSON of `Profile.to_json`.

    Raises:
        BadInput: The text is not such a file, or lacks what a plan needs.
    """
    try:
        data = json.loads(text)
        if data["schema"] != SCHEMA:
            raise BadInput(
                "profile", f"{name} has schema {data['schema']}", f"This version reads schema {SCHEMA}"
            )
        parameters = {}
        for key, row in data["parameters"].items():
            measured = Measured(
                float(row["value"]), float(row["low"]), float(row["high"]), int(row["n"]), row["how"]
            )
            if not measured.low <= measured.value <= measured.high:
                raise BadInput("profile", f"{name}: {key} lies outside its interval", "low ≤ value ≤ high")
            parameters[Parameter(key)] = measured
        if not RUNTIME_NAME.fullmatch(data["runtime"]):
            raise BadInput("profile", f"{name} has the runtime {data['runtime']!r}", RUNTIME_NAME.pattern)
        profile = Profile(
            str(data["workload"]), date.fromisoformat(data["measured_on"]), data["runtime"],
            str(data["machine"]), str(data["image"]), tuple(data["sources"]), parameters,
            tuple(data.get("notes", ())), str(data.get("accelerator", "")),
        )  # fmt: skip
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise BadInput(
            "profile", f"{name} is not a workload profile: {error!r}", "see osgym fleet fit"
        ) from error
    if missing := [p.value for p in REQUIRED if p not in parameters]:
        raise BadInput("profile", f"{name} lacks {', '.join(missing)}", "see osgym fleet fit")
    return profile


def names() -> tuple[str, ...]:
    """Return the names of the built-in profiles."""
    folder = resources.files("osgym_infra.workloads") / "data"
    return tuple(sorted(p.name.removesuffix(".json") for p in folder.iterdir() if p.name.endswith(".json")))


def load(name: str) -> Profile:
    """Load a built-in profile by name, or a file.

    Raises:
        BadInput: There is no such profile, or the file is not one.
    """
    if name in names():
        path = resources.files("osgym_infra.workloads") / "data" / f"{name}.json"
        return from_json(path.read_text("utf-8"), name)
    try:
        return from_json(Path(name).read_text("utf-8"), name)
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(
            "profile", f"there is no profile {name!r}", f"Built in are {', '.join(names())}; else name a file"
        ) from error


def chosen(name: str, runtime: str, emulated: bool = False) -> Profile:
    """Load the named profile; without a name, that of the runtime.

    Raises:
        BadInput: There is no such profile, the file is not one, or none of the runtime comes along.
    """
    if name:
        return load(name)
    if emulated and boots_machines(runtime):
        return load(EMULATED)
    if runtime not in DEFAULTS:
        raise BadInput(
            "profile",
            f"no built-in profile is for the runtime {runtime!r}",
            f"Name a file that osgym fleet fit made for it; built in are profiles for {', '.join(DEFAULTS)}",
        )
    return load(DEFAULTS[runtime])


def with_values(base: ReplicaNeeds, **values: float | None) -> ReplicaNeeds:
    """Replace parameters by the user's values; `None` keeps the profile's."""
    given: dict[str, Any] = {k: v for k, v in values.items() if v is not None}
    return replace(base, **given)
