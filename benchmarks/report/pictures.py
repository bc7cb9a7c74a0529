"""Pictures of the series that are curves.

The data of a picture is gathered first, as plain data. Its digest is stored in the PNG, so that a test
without matplotlib can tell whether the picture is of the current files.
"""

from __future__ import annotations

import hashlib
import json
import statistics
import struct
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.common import quantile
from benchmarks.report.expressions import load, where
from benchmarks.settle.stats import wilson

if TYPE_CHECKING:
    from matplotlib.axes import Axes

VERSION = 2
"""Number that increases when a picture is drawn in another way from the same data."""
KEY = "osgym-data"
SIZE_INCHES = (7.6, 3.6)
DPI = 90
# Okabe and Ito's colours, which those who confuse red and green tell apart.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#999999")
WAITS_MS = (60, 100, 200, 500, 1000, 2000)
PARTS = ("client_ms", "network_ms", "host_ms", "guest_ms", "input_ms", "capture_ms", "encode_ms", "settle_ms")


def step_split() -> Any:
    """Return medians of a step's parts by policy, without OSWorld's way, which would hide the rest."""
    found = {}
    for way in ("fast", "exact"):
        rows = where(load("step_path")["samples"], way=way)
        found[way] = [round(statistics.median(row["parts"][part] for row in rows), 3) for part in PARTS]
    return found


def settle() -> Any:
    """Return mean wait and share of frames that were not final, with its interval, by policy."""
    verdicts = load("settle/strokes")["verdicts"]
    found = {}
    for policy in sorted({row["policy"] for row in verdicts}):
        rows = where(verdicts, policy=policy)
        bad = sum(row["premature"] for row in rows)
        low, high = wilson(bad, len(rows))
        wait = statistics.fmean(row["wait_ms"] for row in rows)
        found[policy] = [round(v, 3) for v in (wait, 100 * bad / len(rows), 100 * low, 100 * high)]
    return found


def load_curve() -> Any:
    """Return median and p95 of a step, and CPU time of a step, over the replicas at work."""
    rows = where(load("load_curve")["series"], window="busy")
    return [
        [
            row["replicas"],
            round(statistics.median(row["step_ms"]), 1),
            round(statistics.quantiles(row["step_ms"], n=20, method="inclusive")[-1], 1),
            round(row["cpu_s"] / row["steps"], 4),
        ]
        for row in rows
    ]


def throughput() -> Any:
    """Return trajectories per minute, one number for each round, over the number at the same time."""
    rows = where(load("throughput_local_full")["series"], think_s=0.0, templates_setting="off")
    counts = sorted({row["replicas"] for row in rows})
    return {
        "cores": load("throughput_local_full")["machine"]["cores"],
        "counts": counts,
        "rates": [[row["per_minute"] for row in where(rows, replicas=count)] for count in counts],
        "per_core_minute": [
            round(statistics.fmean(row["per_core_minute"] for row in where(rows, replicas=count)), 2)
            for count in counts
        ],
    }


def density() -> Any:
    """Return the memory that the host lost over the desktops on it, for both runtimes and at rest."""
    return {
        "local": [[row["replicas"], round(row["host_mib"])] for row in load("density")["curve"]],
        "local, at rest": [[row["replicas"], round(row["lost_mib"])] for row in load("resting")["curve"]],
        "qemu": [[row["replicas"], round(row["lost"])] for row in load("vm_density_full")["curve"]],
    }


def predicted() -> Any:
    """Return the p95 of a step over the replicas at work, by the cost model and as measured."""
    rows = load("predicted")["rows"]
    return {
        "fitted_up_to": load("predicted")["fit_up_to"],
        "counts": [row["replicas"] for row in rows],
        "model": [row["model"].get("p95_ms") for row in rows],
        "measured": [row["measured"]["p95_ms"] for row in rows],
    }


def fault_rates() -> Any:
    """Return trajectories per minute and lost groups over the rate of faults."""
    rows = load("fault_rates")["rows"]
    found = []
    for every_s in sorted({row["every_s"] for row in rows}, key=lambda every: (every > 0, -every)):
        mine = where(rows, every_s=every_s)
        shares = [
            round(100 * statistics.fmean(row[name] for row in mine), 2)
            for name in (
                "groups_of_8_lost_without_retry",
                "groups_of_16_lost_without_retry",
                "groups_of_16_lost",
            )
        ]
        rate = statistics.fmean(row["faults_per_replica_hour"] for row in mine)
        found.append([round(rate, 1), round(statistics.fmean(row["per_minute"] for row in mine), 2), *shares])
    return found


def agent_memory() -> Any:
    """Return the resident memory of a host agent over its episodes."""
    found = load("agent_memory")
    return {
        "remembers": found["remembers"],
        "samples": [[row["episodes"], row["rss_mib"]] for row in found["samples"]],
    }


def warm_replicas() -> Any:
    """Return the CPU time of a whole turn of a replica, by task and way: median and quartiles."""
    rows = load("warm_replicas")["rows"]
    ways, tasks = (list(dict.fromkeys(row[name] for row in rows)) for name in ("way", "task"))
    found = {}
    for way in ways:
        spread = [[row["cpu_s"] for row in where(rows, way=way, task=task)] for task in tasks]
        found[way] = [[round(quantile(values, q), 3) for q in (0.25, 0.5, 0.75)] for values in spread]
    return {"tasks": [task.partition("/")[2] or "no task" for task in tasks], "cpu_s": found}


def many_images() -> Any:
    """Return the time of a reset by image and way: median and 95th percentile."""
    found = load("many_images")
    rows, ways = found["rows"], ("one agent", "three agents")

    def figures(way: str, image: str) -> list[float]:
        values = [row["reset_ms"] for row in where(rows, way=way, image=image)]
        return [round(quantile(values, q), 1) for q in (0.5, 0.95)]

    return {
        "images": found["images"],
        "ms": {way: [figures(way, one) for one in found["images"]] for way in ways},
    }


def _draw_step_split(axes: Axes, data: Any) -> None:
    ways = list(data)
    left = [0.0] * len(ways)
    for place, part in enumerate(PARTS):
        widths = [data[way][place] for way in ways]
        axes.barh(ways, widths, left=left, color=COLOURS[place], label=part.removesuffix("_ms"))
        left = [a + b for a, b in zip(left, widths, strict=True)]
    axes.set_xlabel("medians of a step's parts, ms")
    axes.legend(ncols=4, fontsize=8, loc="upper center", bbox_to_anchor=(0.5, 1.3), frameon=False)


def _draw_settle(axes: Axes, data: Any) -> None:
    for place, (policy, (wait, share, low, high)) in enumerate(data.items()):
        if wait <= 0:
            continue  # without any pause: of the scale
        ours = policy in ("exact", "fast")
        bars = [[share - low], [high - share]]
        colour = COLOURS[1] if ours else COLOURS[0]
        axes.errorbar([wait], [share], yerr=bars, fmt="D" if ours else "o", color=colour, capsize=3)
        offset = (8, 8 + 4 * (place % 2))
        axes.annotate(policy, (wait, share), textcoords="offset points", xytext=offset, fontsize=9)
    axes.set_xscale("log")
    axes.set_xlim(60, 4000)
    axes.set_xticks(WAITS_MS, [str(wait) for wait in WAITS_MS])
    axes.set_xlabel("mean wait, ms")
    axes.set_ylabel("frames not final, %")
    axes.set_ylim(bottom=0)


def _draw_load_curve(axes: Axes, data: Any) -> None:
    counts = [row[0] for row in data]
    axes.plot(counts, [row[1] for row in data], "o-", color=COLOURS[0], label="step, median")
    axes.plot(counts, [row[2] for row in data], "s--", color=COLOURS[1], label="step, p95")
    axes.set_xlabel("replicas at work")
    axes.set_ylabel("ms")
    axes.set_xscale("log", base=2)
    axes.set_xticks(counts, [str(count) for count in counts])
    axes.set_ylim(bottom=0)
    beside = axes.twinx()
    beside.plot(counts, [row[3] for row in data], "^:", color=COLOURS[2], label="CPU-s of a step")
    beside.set_ylabel("CPU-s")
    beside.set_ylim(bottom=0)
    lines = [*axes.get_lines(), *beside.get_lines()]
    names = [str(line.get_label()) for line in lines]
    axes.legend(
        lines, names, ncols=3, fontsize=9, loc="upper center", bbox_to_anchor=(0.5, 1.16), frameon=False
    )


def _draw_throughput(axes: Axes, data: Any) -> None:
    counts, rates = data["counts"], data["rates"]
    axes.plot(counts, [statistics.fmean(several) for several in rates], "-", color=COLOURS[0], label="mean")
    for count, several in zip(counts, rates, strict=True):
        label = "a round" if count == counts[0] else None
        axes.plot([count] * len(several), several, "o", color=COLOURS[0], markersize=4, label=label)
    bound = [data["cores"] * rate for rate in data["per_core_minute"]]
    axes.plot(counts, bound, "s--", color=COLOURS[1], label="if all cores worked on nothing else")
    axes.set_xlabel("trajectories at the same time")
    axes.set_ylabel("trajectories a minute")
    axes.set_xscale("log", base=2)
    axes.set_xticks(counts, [str(count) for count in counts])
    axes.set_ylim(bottom=0)
    axes.legend(frameon=False, fontsize=9)


def _draw_density(axes: Axes, data: Any) -> None:
    for place, (runtime, rows) in enumerate(data.items()):
        xs, ys = [row[0] for row in rows], [row[1] / 1024 for row in rows]
        axes.plot(xs, ys, "o-", color=COLOURS[place], markersize=3, label=f"{runtime}, full image")
    axes.set_xlabel("desktops")
    axes.set_ylabel("GiB that the host lost")
    axes.legend(frameon=False)


def _draw_predicted(axes: Axes, data: Any) -> None:
    counts = data["counts"]
    axes.plot(counts, data["measured"], "o-", color=COLOURS[0], label="measured")
    axes.plot(counts, data["model"], "s--", color=COLOURS[1], label="the model")
    axes.axvspan(counts[0], data["fitted_up_to"], color="#000000", alpha=0.07, label="fitted to these")
    axes.set_xlabel("replicas at work")
    axes.set_ylabel("p95 of a step, ms")
    axes.set_xscale("log", base=2)
    axes.set_xticks(counts, [str(count) for count in counts])
    axes.set_ylim(bottom=0)
    axes.legend(frameon=False, fontsize=9)


def _draw_fault_rates(axes: Axes, data: Any) -> None:
    rates = [row[0] for row in data]
    axes.plot(rates, [row[1] for row in data], "o-", color=COLOURS[0], label="trajectories a minute")
    axes.set_xlabel("faults of a replica an hour")
    axes.set_ylabel("trajectories a minute")
    axes.set_ylim(bottom=0)
    beside = axes.twinx()
    names = ("groups of 8, no retry", "groups of 16, no retry", "groups of 16, one retry")
    for place, name in enumerate(names, start=1):
        beside.plot(rates, [row[place + 1] for row in data], "s--", color=COLOURS[place], label=name)
    beside.set_ylabel("lost, %")
    beside.set_ylim(0, 100)
    lines = [*axes.get_lines(), *beside.get_lines()]
    labels = [str(line.get_label()) for line in lines]
    axes.legend(
        lines, labels, ncols=2, fontsize=8, loc="upper center", bbox_to_anchor=(0.5, 1.22), frameon=False
    )


def _draw_agent_memory(axes: Axes, data: Any) -> None:
    axes.plot(*zip(*data["samples"], strict=True), ".-", color=COLOURS[0])
    axes.axvline(data["remembers"], color=COLOURS[1], linestyle="--", label="creates that it remembers")
    axes.set_xlabel("episodes so far")
    axes.set_ylabel("resident memory, MiB")
    axes.set_ylim(bottom=0)
    axes.legend(frameon=False, loc="lower right")


def _draw_warm_replicas(axes: Axes, data: Any) -> None:
    width = 0.8 / len(data["cpu_s"])
    for place, (way, spread) in enumerate(data["cpu_s"].items()):
        at = [number + (place + 0.5) * width - 0.4 for number in range(len(spread))]
        middle = [row[1] for row in spread]
        around = [[row[1] - row[0] for row in spread], [row[2] - row[1] for row in spread]]
        axes.bar(at, middle, width, yerr=around, color=COLOURS[place], ecolor="#444444", label=way)
    axes.set_xticks(range(len(data["tasks"])), data["tasks"])
    axes.set_ylabel("CPU time of a turn, s")
    axes.legend(frameon=False, fontsize=9)


def _draw_many_images(axes: Axes, data: Any) -> None:
    for place, (way, figures) in enumerate(data["ms"].items()):
        at = [number + (place - 0.5) * 0.4 for number in range(len(figures))]
        axes.bar(at, [row[1] for row in figures], 0.36, color=COLOURS[place], alpha=0.35, label=f"{way}, p95")
        axes.bar(at, [row[0] for row in figures], 0.36, color=COLOURS[place], label=f"{way}, p50")
    axes.set_xticks(range(len(data["images"])), data["images"])
    axes.set_ylabel("reset, ms")
    axes.legend(frameon=False, fontsize=9)


ALL: dict[str, tuple[Callable[[], Any], Callable[[Axes, Any], None]]] = {
    "step_split": (step_split, _draw_step_split),
    "settle": (settle, _draw_settle),
    "load_curve": (load_curve, _draw_load_curve),
    "throughput": (throughput, _draw_throughput),
    "density": (density, _draw_density),
    "predicted": (predicted, _draw_predicted),
    "fault_rates": (fault_rates, _draw_fault_rates),
    "agent_memory": (agent_memory, _draw_agent_memory),
    "warm_replicas": (warm_replicas, _draw_warm_replicas),
    "many_images": (many_images, _draw_many_images),
}


def digest(name: str) -> str:
    """Return the digest of a picture's data and style."""
    data = json.dumps([VERSION, name, ALL[name][0]()], sort_keys=True)
    return hashlib.sha256(data.encode()).hexdigest()[:24]


def drawn_from(path: Path) -> str:
    """Return the digest that is stored in a picture; empty where there is none."""
    if not path.is_file():
        return ""
    data = path.read_bytes()
    at = 8
    while at + 8 <= len(data):
        (length,), kind = struct.unpack_from(">I", data, at), data[at + 4 : at + 8]
        if kind == b"tEXt" and data[at + 8 : at + 8 + length].startswith(KEY.encode() + b"\0"):
            return data[at + 8 + len(KEY) + 1 : at + 8 + length].decode("latin-1")
        at += 12 + length
    return ""


def stale(folder: Path) -> list[str]:
    """Return the pictures that are missing, or are not of the current files."""
    return [name for name in ALL if drawn_from(folder / f"{name}.png") != digest(name)]


def draw(names: Sequence[str], folder: Path) -> None:
    """Write pictures.

    Raises:
        ImportError: matplotlib is not installed.
    """
    from matplotlib.figure import Figure

    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        gather, paint = ALL[name]
        figure = Figure(figsize=SIZE_INCHES, dpi=DPI, layout="constrained")
        axes = figure.subplots()
        axes.grid(alpha=0.25)
        axes.set_axisbelow(True)
        paint(axes, gather())
        figure.savefig(folder / f"{name}.png", metadata={"Software": None, KEY: digest(name)})
