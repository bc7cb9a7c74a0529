"""Parts that all benchmarks share: a local service, the machine's description, results."""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import platform
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from osgym_host.images.store import default_data_dir

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "results"
LISTENING = re.compile(r"OSGym listens on (\S+)")


class ServiceFailed(RuntimeError):
    """The local service did not start; the message has the end of its log."""


@contextlib.contextmanager
def local_service(
    image: str = "full", settings: Mapping[str, str | int | float] | None = None, timeout_s: float = 60.0
) -> Iterator[tuple[str, int]]:
    """Run `osgym host serve` on a free loopback port for the time of the block.

    Yields:
        The service's URL and its process id.

    Raises:
        ServiceFailed: It ended or did not listen within `timeout_s`.
    """
    given = {"instance": f"bench-{os.getpid()}", "ports": 0, "image": image, **(settings or {})}
    argv = [sys.executable, "-m", "osgym_host", "serve"]
    for name, value in given.items():
        argv += ["--set", f"{name}={value}"]
    with tempfile.TemporaryFile("w+") as log:
        process = subprocess.Popen(argv, stdout=log, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)
        try:
            yield _wait_for_url(process, log, timeout_s), process.pid
        finally:
            process.send_signal(signal.SIGINT)
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            else:
                for folder in ("run", "state"):  # what a named instance keeps for its next start
                    path = Path(str(given.get("data_dir", default_data_dir()))) / folder
                    shutil.rmtree(path / str(given["instance"]), ignore_errors=True)


def _wait_for_url(process: subprocess.Popen[bytes], log: Any, timeout_s: float) -> str:
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        log.seek(0)
        text = log.read()
        if found := LISTENING.search(text):
            return found.group(1)
        if process.poll() is not None:
            raise ServiceFailed(f"osgym host serve ended with {process.returncode}:\n{text[-2000:]}")
        time.sleep(0.05)
    raise ServiceFailed(f"osgym host serve did not listen within {timeout_s} s:\n{text[-2000:]}")


def argument_parser(description: str | None, *, image: str = "", flavor: str = "") -> argparse.ArgumentParser:
    """Return a parser with the common options.

    Args:
        image: Default of `--image`; without one there is no such option.
        flavor: Default of `--flavor`, for benchmarks that run the tasks of an image.
    """
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    if image:
        parser.add_argument("--image", default=image, help=f"golden image: full or small ({image})")
    if flavor:
        what = f"image and tasks ({flavor})"
        parser.add_argument("--flavor", choices=["small", "full"], default=flavor, help=what)
        only = "only tasks with this in their name"
        parser.add_argument("--only", action="append", default=[], help=only)
    parser.add_argument("--out", type=Path, help="where the raw series goes")
    return parser


def leak_rows(series: Sequence[Mapping[str, float]], slack: Mapping[str, float]) -> list[dict[str, Any]]:
    """Compare the last of a series with the first, and return the growth."""
    before, after = series[0], series[-1]
    return [
        {
            "what": name,
            "before": before[name],
            "after": after[name],
            "slack": most,
            "leak": after[name] - before[name] > most,
        }
        for name, most in slack.items()
    ]


def meminfo_mib() -> dict[str, float]:
    rows = (line.split() for line in Path("/proc/meminfo").read_text().splitlines())
    return {row[0].rstrip(":"): int(row[1]) / 1024 for row in rows if len(row) == 3}


def machine() -> dict[str, Any]:
    """Describe the machine of the figures."""
    commit = subprocess.run(
        ["git", "-C", str(ROOT), "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False
    ).stdout.strip()
    model = re.search(r"model name\s*:\s*(.*)", Path("/proc/cpuinfo").read_text())
    return {
        "cpu": model.group(1) if model else platform.machine(),
        "cores": len(os.sched_getaffinity(0)),
        "ram_mib": round(meminfo_mib()["MemTotal"]),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "load_before": os.getloadavg()[0],
        "commit": commit,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def quantile(values: Sequence[float], q: float) -> float:
    """Return the q-quantile (0..1) by linear interpolation; NaN for no values."""
    if not values:
        return float("nan")
    ordered = sorted(values)
    place = q * (len(ordered) - 1)
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


def per_hour(at_s: list[float], values: list[float]) -> tuple[float, float]:
    """Return the slope per hour and half of its 95 % interval, by least squares.

    >>> per_hour([0, 900, 1800, 2700], [1, 2, 3, 4])
    (4.0, 0.0)
    """
    slope, intercept = statistics.linear_regression(at_s, values)
    rest = sum((y - intercept - slope * x) ** 2 for x, y in zip(at_s, values, strict=True))
    mean = statistics.fmean(at_s)
    spread = sum((x - mean) ** 2 for x in at_s)
    error = math.sqrt(rest / (len(at_s) - 2) / spread) if len(at_s) > 2 else math.inf
    return round(slope * 3600, 3), round(1.96 * error * 3600, 3)


def summary(values: Sequence[float]) -> dict[str, float]:
    """Return count, mean, median, p95, minimum and maximum."""
    return {
        "n": len(values),
        "mean": statistics.fmean(values) if values else float("nan"),
        "median": quantile(values, 0.5),
        "p95": quantile(values, 0.95),
        "min": min(values, default=float("nan")),
        "max": max(values, default=float("nan")),
    }


def save(name: str, result: Mapping[str, Any], path: Path | None = None) -> Path:
    """Write a result with its raw series as JSON, and return its path."""
    target = path or RESULTS / f"{name}.json"
    target.parent.mkdir(parents=True, exist_ok=True)
    run = {"benchmark": name, "argv": [Path(sys.argv[0]).name, *_without_place(sys.argv[1:])]}
    target.write_text(dumps({**run, **result}) + "\n")
    return target


def dumps(value: Any, margin: str = "") -> str:
    """Return JSON with one line for each series of numbers and each row of a table."""
    inner = f"{margin} "
    match value:
        case dict() if any(isinstance(part, dict | list) for part in value.values()):
            lines = [f"{inner}{json.dumps(name)}: {dumps(part, inner)}" for name, part in value.items()]
            return "{\n" + ",\n".join(lines) + f"\n{margin}}}"
        case list() if any(isinstance(part, dict | list) for part in value):
            lines = [inner + json.dumps(part) for part in value]
            return "[\n" + ",\n".join(lines) + f"\n{margin}]"
        case _:
            return json.dumps(value)


def _without_place(arguments: Sequence[str]) -> list[str]:
    """Return a command line without `--out FILE`, and with file names instead of paths."""
    found = list(arguments)
    if "--out" in found:
        at = found.index("--out")
        del found[at : at + 2]
    return [Path(text).name if Path(text).is_absolute() else text for text in found]
