"""Page of results as Markdown, from the result files and the four tables beside this module."""

from __future__ import annotations

import statistics
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.common import RESULTS, ROOT, quantile
from benchmarks.compare import MIN_SAMPLES, median_interval
from benchmarks.report.expressions import BadReference, evaluate, files_of, filled, load, number

PAGE = ROOT / "docs" / "benchmarks.md"
README = ROOT / "benchmarks" / "README.md"
PICTURES = ROOT / "docs" / "benchmarks"
HERE = Path(__file__).parent
HEAD = """# Results

`make bench-report` writes this page from the [result files](../benchmarks/results), and a test compares them.
[benchmarks/README.md](../benchmarks/README.md) says how to run the benchmarks and explains the results. Each
median has the 95 % interval of a bootstrap. Most runs shared two virtualised cores with other work, so ratios
within a run are more reliable than times.
"""


@dataclass(frozen=True, slots=True)
class Series:
    """Samples of one kind, with their names."""

    label: str
    values: list[float]


def table(name: str) -> Any:
    """Return one of the tables beside this module."""
    return tomllib.loads((HERE / f"{name}.toml").read_text(encoding="utf-8"))


def results() -> Iterator[Mapping[str, Any]]:
    for part in table("results")["part"]:
        yield from part["result"]


def series_of(section: Mapping[str, Any]) -> Iterator[Series]:
    """Yield the series that a section shows.

    Raises:
        BadReference: One leads nowhere.
    """
    for one in section.get("series", ()):
        scale = one.get("scale", 1.0)
        if "by" not in one:
            yield Series(one["label"], _numbers(evaluate(one["values"]), scale))
            continue
        groups: dict[str, list[Any]] = {}
        for row in evaluate(one["rows"]):
            found = row[one["values"]]
            groups.setdefault(str(row[one["by"]]), []).extend(found if isinstance(found, list) else [found])
        for key, values in groups.items():
            yield Series(one["label"].format(**{one["by"]: key}), _numbers(values, scale))


def _numbers(found: Any, scale: float) -> list[float]:
    values = [scale * one for one in found if one is not None]
    if not values:
        raise BadReference("a series without a sample")
    return values


def about(kept: Any) -> str:
    """Return the command, machine, time and side conditions, as far as the file has them."""
    told = kept.get("machine", kept) if isinstance(kept, Mapping) else {}
    told = told if isinstance(told, Mapping) else {"platform": told}
    words = []
    if kept.get("argv"):
        words.append(f"`{' '.join(_command(kept))}`")
    if "cpu" in told:
        words.append(f"{told['cpu']}, {told['cores']} cores, {told['ram_mib'] / 1024:.1f} GiB")
    elif "cpus" in told or "cores" in kept:
        words.append(f"{told.get('cpus') or kept['cores']} cores")
    if "date" in told:
        words.append(f"{told['date'][:16].replace('T', ' ')} UTC, commit {told['commit']}")
    if isinstance(load_before := told.get("load_before"), int | float):
        words.append(f"load before {load_before:.1f}")
    if not any(name in told for name in ("date", "cpu")):
        words.append("time and machine not recorded")
    text = "; ".join(words) + "."
    return text[0].upper() + text[1:]


def _command(kept: Mapping[str, Any]) -> list[str]:
    argv = kept["argv"]
    if argv[0].startswith("-"):  # an example stores its options only
        return ["python", kept["benchmark"], *argv]
    return ["python", "-m", _module(kept), *argv[1:]]


def _module(kept: Mapping[str, Any]) -> str:
    script = str(kept["argv"][0])
    if script == "__main__.py":
        name = str(kept.get("benchmark", ""))
        while "_" in name and not (ROOT / "benchmarks" / name).is_dir():  # `settle_run` is one of `settle`
            name = name.rpartition("_")[0]
        return f"benchmarks.{name}"
    return f"benchmarks.{script.removesuffix('.py')}"


def section(one: Mapping[str, Any]) -> Iterator[str]:
    name = one["file"]
    yield f"### {name}\n"
    yield f"{one['asks']} [The file](../benchmarks/results/{name}.json). {about(load(name))}\n"
    for text in one.get("says", ()):
        yield filled(text) + "\n"
    found = list(series_of(one))
    if found:
        yield "| series | median (95 %) | p95 | n |\n|---|---|---|---|"
        for series in found:
            yield _row(series)
        yield ""
    if picture := one.get("picture"):
        yield f"![{one['asks']}](benchmarks/{picture}.png)\n"


def _row(series: Series) -> str:
    values = series.values
    middle = number(statistics.median(values))
    if len(values) >= MIN_SAMPLES:
        low, high = median_interval(values)
        middle += f" ({number(low)} to {number(high)})"
    high = number(quantile(values, 0.95)) if len(values) >= 20 else f"{number(max(values))} (most)"
    return f"| {series.label} | {middle} | {high} | {len(values)} |"


def links(template: str) -> str:
    """Return the files of a row, as links from docs/."""
    return ", ".join(f"[{name}](../benchmarks/results/{name}.json)" for name in files_of(template))


def claims() -> Iterator[str]:
    yield "## The paper's claims\n"
    yield (
        "The left column has the published numbers of the OSGym paper "
        "([arXiv 2511.11672](https://arxiv.org/abs/2511.11672)); its system was not run here.\n"
    )
    yield "| the paper | here | conditions | shortcomings and differences |\n|---|---|---|---|"
    for row in table("claims")["row"]:
        cells = [filled(row[name]) for name in ("claim", "ours", "conditions", "worse")]
        cells[1] += f" ({links(' '.join(row.values()))})"
        yield "| " + " | ".join(cells) + " |"
    yield ""


def headlines() -> str:
    """Return the table of the most important results."""
    lines = ["| what | measured | file |", "|---|---|---|"]
    for row in table("headlines")["row"]:
        shown = links(row["what"] + row["measured"])
        lines.append(f"| {filled(row['what'])} | {filled(row['measured'])} | {shown} |")
    return "\n".join(lines) + "\n"


def page() -> str:
    """Return the whole page.

    Raises:
        BadReference: A number of it is in no file.
    """
    lines = [HEAD, "## In short\n", headlines(), *claims()]
    for part in table("results")["part"]:
        lines.append(f"## {part['title']}\n")
        for one in part["result"]:
            lines.extend(section(one))
    return "\n".join(lines).rstrip() + "\n"


def kept_files() -> list[str]:
    return sorted(str(path.relative_to(RESULTS).with_suffix("")) for path in RESULTS.rglob("*.json"))
