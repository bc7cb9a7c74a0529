"""Predictions of the cost model from few replicas, compared with measurements of many.

    python -m benchmarks.predicted load_curve.json load_curve_resets.json --fit-up-to 4

Of files of `load_curve` only the rows of up to so many replicas are fitted, as `osgym fleet fit` does it.
From that profile, and for the cores of the machine that the files are of, the model then says for every
number of replicas: CPU time a second, steps a second, memory, and the 95th percentile of a step. The model
knows the CPU work of a step only, so its percentile is that measured of the smallest number of replicas,
times how much slower the model says that more of them are. `replicas_within_times_p95` has the largest number
whose p95 is within so many times that of one alone, by the model and by the measurement.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.common import argument_parser, quantile, save
from osgym_infra.cost.queueing import Work, load, station
from osgym_infra.workloads.fit import fit_profile
from osgym_infra.workloads.observations import Observations, observe
from osgym_infra.workloads.profile import Parameter, Profile

LIMITS = (1.5, 2.0, 3.0, 5.0)


def up_to(data: Mapping[str, Any], most: int) -> dict[str, Any]:
    """Return a file without its rows of more replicas."""
    return {**data, "series": [row for row in data["series"] if row["replicas"] <= most]}


def model_row(profile: Profile, cores: float, replicas: int) -> dict[str, float]:
    """Return the model's row for so many replicas, in the middle of every interval."""
    at = {name: measured.value for name, measured in profile.parameters.items()}
    idle = at[Parameter.IDLE_CORES]
    work = Work(
        at[Parameter.STEP_CPU_S], at[Parameter.THINK_S], at[Parameter.RESET_CPU_S],
        at[Parameter.STEPS_PER_EPISODE],
    )  # fmt: skip
    served = station(cores, replicas, idle, work)
    if served is None:
        return {}
    found = load(served.servers, replicas, served.work)
    visits = found.steps_per_s / work.step_share
    return {
        "cores": round(visits * work.mean_s + replicas * idle, 3),
        "steps_per_s": round(found.steps_per_s, 2),
        "pss_mib": round(at[Parameter.WORKING_SET_MIB] + (replicas - 1) * at[Parameter.PRIVATE_MIB]),
        "cpu_p95_ms": round(found.p95_s * 1000, 1),
    }


def measured_row(row: Mapping[str, Any]) -> dict[str, float]:
    return {
        "cores": round(row["cpu_s"] / row["seconds"], 3),
        "steps_per_s": round(row["steps"] / row["seconds"], 2),
        "pss_mib": round(row["pss_mib"]),
        "p95_ms": round(quantile(row["step_ms"], 0.95), 1),
    }


def compared(files: Sequence[Mapping[str, Any]], fit_up_to: int) -> dict[str, Any]:
    """Fit, predict, and add the measurement."""
    seen = Observations()
    for number, data in enumerate(files):
        seen.add(observe(up_to(data, fit_up_to), f"file {number + 1}"))
    profile = fit_profile(seen, "fitted")
    busy = [row for data in files for row in data["series"] if row.get("steps")]
    cores = float(files[0]["machine"]["cores"])
    rows: list[dict[str, Any]] = []
    for row in sorted(busy, key=lambda r: int(r["replicas"])):
        model, measured = model_row(profile, cores, row["replicas"]), measured_row(row)
        if model:
            first = rows[0] if rows else {"measured": measured, "model": model}
            slower = model["cpu_p95_ms"] / first["model"]["cpu_p95_ms"]
            model["p95_ms"] = round(first["measured"]["p95_ms"] * slower, 1)
        fitted = row["replicas"] <= fit_up_to
        rows.append({"replicas": row["replicas"], "fitted": fitted, "model": model, "measured": measured})
    alone = rows[0]["measured"]["p95_ms"]
    within = {
        f"{limit:g}": {k: _most(rows, k, limit * alone) for k in ("model", "measured")} for limit in LIMITS
    }
    fitted_as = {name.value: measured.value for name, measured in profile.parameters.items()}
    return {"profile": fitted_as, "rows": rows, "replicas_within_times_p95": within}


def _most(rows: Sequence[Mapping[str, Any]], kind: str, limit_ms: float) -> int:
    """Return the largest number of replicas up to which all percentiles are within the limit."""
    most = 0
    for row in rows:
        if row[kind].get("p95_ms", float("inf")) > limit_ms:
            break
        most = row["replicas"]
    return most


def main() -> None:
    parser = argument_parser(__doc__)
    parser.add_argument("files", nargs="+", type=Path, help="of `benchmarks.load_curve`, of one machine")
    parser.add_argument("--fit-up-to", type=int, default=4, help="replicas whose rows are fitted (4)")
    options = parser.parse_args()
    files = [json.loads(path.read_text("utf-8")) for path in options.files]
    found = compared(files, options.fit_up_to)
    for row in found["rows"]:
        print(row["replicas"], "fitted" if row["fitted"] else "foretold", row["model"], row["measured"])
    print(found["replicas_within_times_p95"])
    told = {"machine": files[0]["machine"], "fit_up_to": options.fit_up_to, **found}
    print(f"raw: {save('predicted', told, options.out)}")


if __name__ == "__main__":
    main()
