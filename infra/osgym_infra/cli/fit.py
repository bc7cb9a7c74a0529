"""`osgym fleet fit`: a workload profile from a benchmark's raw series."""

from __future__ import annotations

from pathlib import Path

import click
from rich.console import Console

from osgym_infra.catalogue.ages import today
from osgym_infra.cli.common import exits
from osgym_infra.cli.tables import WIDTH, profile_table
from osgym_infra.errors import BadInput
from osgym_infra.workloads.fit import fit_profile
from osgym_infra.workloads.observations import Observations, read
from osgym_infra.workloads.profile import TCG

EPILOG = """\b
Examples
  Everything from one benchmark, and print the profile as a table
    osgym fleet fit benchmarks/results/load_curve.json
  Memory from one benchmark, CPU from another, for a policy that thinks 10 s; keep it and plan with it
    osgym fleet fit benchmarks/results/load_curve.json benchmarks/results/density.json \\
      --workload office --think-s 10 --out office.json
    osgym fleet plan --replicas 1024 --profile office.json
  Steps and resets from two runs of one benchmark, of virtual machines that no KVM ran
    osgym fleet fit benchmarks/results/load_curve_qemu.json --emulated --workload office-tcg
"""


@click.command(epilog=EPILOG)
@click.argument("results", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--workload", default="workload", show_default=True, help="The profile's id.")
@click.option("--think-s", type=float, help="Z: think time of the planned policy; default: as measured.")
@click.option("--emulated", is_flag=True, help="The virtual machines ran without KVM.")
@click.option("--out", type=click.Path(path_type=Path), help="File for the profile.")
@click.option("--json", "as_json", is_flag=True, help="Print the profile as JSON.")
@exits
def fit(
    results: tuple[Path, ...], workload: str, think_s: float | None, emulated: bool, out: Path | None,
    as_json: bool,
) -> None:  # fmt: skip
    """Fit memory, CPU and think time of a workload, with 95 % intervals, from RESULTS.json of benchmarks."""
    if think_s is not None and think_s < 0:
        raise BadInput("--think-s", f"{think_s} s", "0 or more")
    seen = Observations()
    for path in results:
        seen.add(read(path))
    if emulated:
        seen.accelerator = TCG
    found = fit_profile(seen, workload, think_s, today())
    if out is not None:
        try:
            out.write_text(found.to_json(), "utf-8")
        except OSError as error:
            raise BadInput("--out", f"{out} cannot be written: {error}") from error
    if as_json:
        click.echo(found.to_json(), nl=False)
        return
    click.echo(f"{found.workload}, runtime {found.runtime}, measured {found.measured_on} on {found.machine}")
    Console(width=max(WIDTH + 12, Console().width), highlight=False).print(profile_table(found))
    for note in found.notes:
        click.echo(f"note: {note}")
    if out is not None:
        click.echo(f"profile: {out}")
