"""Reading of benchmarks' raw series into observations.

A file of results is recognised by its shape, not its name: any list of rows that say how many replicas
there were (`replicas`) and what they took (`host_mib`, `pss_mib`, `cpu_s` over `seconds`, `steps`) counts,
so a benchmark of a new runtime needs no code here. Pure but for `read`.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from datetime import date, datetime
from pathlib import Path
from typing import Any

from osgym_infra.cost.model import RUNTIME_NAME
from osgym_infra.errors import BadInput

SERIES = ("series", "curve", "rows", "points")
"""Where rows with `replicas` may stand."""


@dataclass(frozen=True, slots=True)
class LoadWindow:
    """Window of some seconds with K replicas: CPU time of them and their host agent, steps and episodes."""

    replicas: int
    seconds: float
    cpu_s: float
    steps: int = 0
    episodes: int = 0


@dataclass(slots=True)
class Observations:
    """All observations; memory curves are (replicas, MiB of all of them together).

    `awake` and `resting` are windows of one benchmark that ran in turns with replicas that stay awake and
    with replicas whose memory was reclaimed before each step; `resting_mib` is what those occupied then.
    `resting_curve` is a memory curve of replicas at rest.
    """

    runtime: str | None = None
    accelerator: str = ""
    machine: str = ""
    image: str = ""
    dates: list[date] = field(default_factory=list)
    sources: list[str] = field(default_factory=list)
    host_mib: list[tuple[float, float]] = field(default_factory=list)
    pss_mib: list[tuple[float, float]] = field(default_factory=list)
    alone_mib: list[float] = field(default_factory=list)
    idle: list[LoadWindow] = field(default_factory=list)
    resets: list[LoadWindow] = field(default_factory=list)
    busy: list[LoadWindow] = field(default_factory=list)
    step_ms: list[tuple[float, float]] = field(default_factory=list)
    overlay_mib: list[float] = field(default_factory=list)
    frame_kb: list[float] = field(default_factory=list)
    steps_per_episode: list[float] = field(default_factory=list)
    trajectory_s: list[float] = field(default_factory=list)
    threads: list[float] = field(default_factory=list)
    awake: list[LoadWindow] = field(default_factory=list)
    resting: list[LoadWindow] = field(default_factory=list)
    resting_mib: list[float] = field(default_factory=list)
    resting_curve: list[tuple[float, float]] = field(default_factory=list)

    def add(self, other: Observations) -> None:
        """Add the observations of another file.

        Raises:
            BadInput: The files are of different runtimes.
        """
        if self.runtime and other.runtime and self.runtime != other.runtime:
            raise BadInput(
                "results",
                f"{other.sources[0]} was measured with the runtime {other.runtime}, {self.sources[0]} "
                f"with {self.runtime}",
                "Make one profile for each runtime",
            )
        self.runtime = self.runtime or other.runtime
        self.accelerator = self.accelerator or other.accelerator
        self.machine = self.machine or other.machine
        self.image = self.image or other.image
        for part in fields(self):
            mine = getattr(self, part.name)
            if isinstance(mine, list):
                mine.extend(getattr(other, part.name))


def read(path: Path) -> Observations:
    """Read one file of results.

    Raises:
        BadInput: It is no JSON object, or holds nothing that could be fitted.
    """
    try:
        data = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise BadInput("results", f"{path} cannot be read: {error}") from error
    if not isinstance(data, dict):
        raise BadInput("results", f"{path} is not a JSON object", "the file a benchmark saved")
    try:
        return observe(data, path.name)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise BadInput("results", f"{path} does not have the form that benchmarks save: {error!r}") from error


def observe(data: Mapping[str, Any], name: str) -> Observations:
    """Return all observations of one file that are recognised.

    Raises:
        BadInput: That is nothing.
    """
    seen = Observations(sources=[name])
    machine = data.get("machine", {})
    seen.machine = ", ".join(
        part
        for part in (
            str(machine.get("cpu", "")),
            f"{machine['cores']} cores" if "cores" in machine else "",
            f"{machine['ram_mib']} MiB" if "ram_mib" in machine else "",
        )
        if part
    )
    if "date" in machine:
        seen.dates.append(datetime.fromisoformat(machine["date"]).date())
    seen.runtime = _runtime(data)
    seen.accelerator = str(machine.get("accel", ""))
    seen.image = _image(data)
    for row in _rows(data):
        _series_row(row, seen)
    for row in data.get("desktops", []):
        _alone(row, seen)
    for row in data.get("calcs", []):
        _alone(row, seen)
    for row in data.get("samples", []):
        if "image_bytes" in row and row.get("way") != "osworld":
            seen.frame_kb.append(row["image_bytes"] / 1000)
    for row in data.get("rows", []):
        if isinstance(row.get("step_ms"), list) and "duration_s" in row and row.get("reward") is not None:
            seen.steps_per_episode.append(float(len(row["step_ms"])))
            seen.trajectory_s.append(float(row["duration_s"]))
    known = [part.name for part in fields(seen) if part.name not in ("dates", "sources")]
    if not any(isinstance(getattr(seen, n), list) and getattr(seen, n) for n in known):
        raise BadInput("results", f"{name} has no series that can be fitted", "see benchmarks/README.md")
    return seen


def _rows(data: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    for key in SERIES:
        for row in data.get(key, []) if isinstance(data.get(key), list) else []:
            if isinstance(row, dict) and isinstance(row.get("replicas"), int):
                yield row


def _series_row(row: Mapping[str, Any], seen: Observations) -> None:
    replicas = row["replicas"]
    if row.get("threads"):
        seen.threads.append(float(row["threads"]) / replicas)
    if "rest" in row:
        _row_of_comparison(row, seen)
        return
    if "host_mib" in row:
        seen.host_mib.append((replicas, float(row["host_mib"])))
    if "lost_mib" in row:
        seen.resting_curve.append((replicas, float(row["lost_mib"])))
    if "pss_mib" in row:
        seen.pss_mib.append((replicas, float(row["pss_mib"])))
        if replicas == 1:
            seen.alone_mib += _numbers(row.get("pss_samples")) or [float(row["pss_mib"])]
    if "cpu_s" in row and row.get("seconds", 0) > 0:
        window = LoadWindow(
            replicas, float(row["seconds"]), float(row["cpu_s"]), int(row.get("steps", 0)),
            int(row.get("episodes", 0)),
        )  # fmt: skip
        (seen.busy if window.steps else seen.resets if window.episodes else seen.idle).append(window)
    latencies = row.get("step_ms")
    if isinstance(latencies, list) and latencies:
        seen.step_ms.append((replicas, statistics.median(latencies)))
    seen.overlay_mib += _numbers(row.get("overlay_mib"))
    seen.frame_kb += [value / 1000 for value in _numbers(row.get("frame_bytes"))]
    seen.trajectory_s += _numbers(row.get("trajectory_s"))
    seen.steps_per_episode += _numbers(row.get("steps_per_episode"))


def _row_of_comparison(row: Mapping[str, Any], seen: Observations) -> None:
    """Add a row of a benchmark that compares rest; its pace is not that of a workload."""
    if not row.get("steps"):
        return
    window = LoadWindow(
        row["replicas"], float(row["seconds"]), float(row["cpu_s"]), int(row["steps"]), int(row["episodes"])
    )
    if row["rest"] == "off":
        seen.awake.append(window)
    elif row["rest"] == "reclaim":
        seen.resting.append(window)
        seen.resting_mib += _numbers(row.get("resting_mib"))


def _alone(row: Mapping[str, Any], seen: Observations) -> None:
    """Return a replica that was measured while no other ran."""
    seen.alone_mib += _numbers(row.get("pss_mib"))
    seen.overlay_mib += _numbers(row.get("overlay_mib"))


def _numbers(value: object) -> list[float]:
    values: Iterable[object] = value if isinstance(value, list) else [value]
    return [float(v) for v in values if isinstance(v, int | float) and not isinstance(v, bool)]


def _runtime(data: Mapping[str, Any]) -> str | None:
    for place in (data, data.get("settings"), data.get("options"), *_dicts(data.get("hosts"))):
        if isinstance(place, dict) and RUNTIME_NAME.fullmatch(str(place.get("runtime"))):
            return str(place["runtime"])
    return None


def _dicts(value: object) -> list[object]:
    return list(value.values()) if isinstance(value, dict) else []


def _image(data: Mapping[str, Any]) -> str:
    for place in (data, *_dicts(data.get("hosts"))):
        image = place.get("image") if isinstance(place, dict) else None
        if isinstance(image, str):
            return image
        if isinstance(image, dict):
            return " ".join(str(image[k])[:12] for k in ("flavor", "name", "digest") if image.get(k))
    return ""
