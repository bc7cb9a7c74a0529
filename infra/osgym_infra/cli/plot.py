"""Picture of cost per replica-day against K, the replicas on one host, with curves on the same axes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from osgym_infra.cost.curve import PAPER, CostCurve, sized_by
from osgym_infra.cost.model import Resource
from osgym_infra.errors import BadInput

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Okabe and Ito's colours, which those who confuse red and green tell apart; lines differ in style as well.
CPU, RAM, BOTH, HOST, POINT, BAND = "#D55E00", "#0072B2", "#000000", "#009E73", "#CC79A7", "#F0E442"
TICKS = (0.03, 0.1, 0.2, 0.3, 1, 2, 3, 10, 30, 100)


def draw(curves: Sequence[CostCurve], path: Path) -> None:
    """Write the picture in the format of the file's suffix.

    Raises:
        BadInput: Matplotlib is not installed, or the file cannot be written.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise BadInput("--plot", "matplotlib is not installed", "pip install 'osgym-infra[plot]'") from error
    figure = Figure(figsize=(12.5, 6.0), dpi=120, layout="constrained")
    panels: Any = figure.subplots(1, len(curves), sharex=True, sharey=True, squeeze=False)[0]
    for panel, curve in zip(panels, curves, strict=True):
        _panel(panel, curve)
    low = min(p.usd for curve in curves for p in curve.points) * 0.25
    high = max(p.type_usd or p.usd for curve in curves for p in curve.points) * 1.6
    panels[0].set_ylim(low, high)
    panels[0].set_ylabel("USD per replica-day")
    panels[0].set_yticks([t for t in TICKS if low < t < high], [f"{t:g}" for t in TICKS if low < t < high])
    panels[0].minorticks_off()
    last = curves[-1].points[-1].replicas
    ticks = [2**i for i in range(last.bit_length())]
    panels[0].set_xticks(ticks, [str(t) for t in ticks])
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=3, frameon=False, fontsize=10)
    figure.suptitle("What a replica costs by how many share a host: CPU sizes it, later RAM", fontsize=13)
    try:
        figure.savefig(path)
    except (OSError, ValueError) as error:
        raise BadInput(
            "--plot", f"{path} cannot be written: {error}", "Give a path that ends in .png"
        ) from error


def _panel(axes: Axes, curve: CostCurve) -> None:
    ks = [p.replicas for p in curve.points]
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xlim(0.9, ks[-1])
    axes.axhspan(
        PAPER.least_usd, PAPER.most_usd, color=BAND, alpha=0.35, lw=0,
        label=f"the paper's {PAPER.least_usd:g} to {PAPER.most_usd:g} USD",
    )  # fmt: skip
    axes.plot(ks, [p.cpu_usd for p in curve.points], color=CPU, lw=1.8, ls="--", label="machine sized by CPU")
    axes.plot(ks, [p.ram_usd for p in curve.points], color=RAM, lw=1.8, ls="-.", label="machine sized by RAM")
    axes.plot(ks, [p.usd for p in curve.points], color=BOTH, lw=2.6, label="machine large enough for both")
    whole = [(p.replicas, p.type_usd) for p in curve.points if p.type_usd is not None]
    whole.append((curve.most, curve.most_usd))
    axes.plot(
        *zip(*sorted(whole), strict=True), color=HOST, lw=1.5, ls=":", label="the whole host, shared by K"
    )
    axes.plot([curve.most], [curve.most_usd], "o", color=HOST, ms=8, zorder=5)
    axes.annotate(
        f"K = {curve.most}: {curve.most_usd:.3f} USD,\n{curve.why}", (curve.most, curve.most_usd),
        xytext=(10, 46), textcoords="offset points", fontsize=10,
        ha="right" if curve.most > curve.points[-1].replicas / 2 else "center",
        bbox={"boxstyle": "round", "fc": "white", "ec": "#bbbbbb"},
        arrowprops={"arrowstyle": "-", "color": "#555555"},
    )  # fmt: skip
    for k, each in curve.known:
        axes.plot([k], [each], "D", color=POINT, ms=9, mec="black", zorder=6)
        if k == 1:
            axes.annotate(f"{each:.2f}", (k, each), xytext=(10, 6), textcoords="offset points", fontsize=10)
    if curve.known:
        axes.plot([], [], "D", color=POINT, ms=9, mec="black", ls="", label="published by the paper")
    _regions(axes, curve)
    axes.set_title(curve.title, fontsize=12, pad=22)
    axes.text(0.5, 1.015, curve.subtitle, transform=axes.transAxes, ha="center", va="bottom", fontsize=8)
    axes.set_xlabel("K, replicas on one host")
    axes.grid(visible=True, which="major", color="#dddddd", lw=0.6)


def _regions(axes: Axes, curve: CostCurve) -> None:
    """Shade where CPU and where RAM sizes the machine, with the crossing between them."""
    if curve.crossing is not None and curve.crossing > 1:
        axes.axvline(curve.crossing, color="#555555", lw=1)
        axes.text(
            curve.crossing, 0.985, f" K = {curve.crossing}", transform=axes.get_xaxis_transform(),
            ha="left", va="top", fontsize=10,
        )  # fmt: skip
    bottom = axes.get_xaxis_transform()
    for what, first, end in sized_by(curve.points):
        if end > first * 2:
            axes.text(
                math.sqrt(first * end), 0.02, f"{what.upper()} sizes it", transform=bottom,
                ha="center", va="bottom", color=RAM if what is Resource.RAM else CPU, fontsize=11,
                weight="bold",
            )  # fmt: skip
