"""`osgym fleet plan`: type, number and price of hosts."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from osgym_infra.catalogue.ages import age_lines, today
from osgym_infra.catalogue.load import load
from osgym_infra.catalogue.shapes import Market
from osgym_infra.cli import tables
from osgym_infra.cli.common import exits, quotas, rates
from osgym_infra.cost.model import LOCAL, QEMU, Rules, boots_machines
from osgym_infra.cost.planner import FleetPlan, PlanRequest, plan_fleet
from osgym_infra.cost.price import CostAssumptions, FramesTo, Interruptions
from osgym_infra.errors import BadInput
from osgym_infra.workloads import profile as profiles
from osgym_infra.workloads.profile import Bound, Profile
from osgym_protocol.option_groups import GroupedCommand, option_group

OF_REPLICA = ("overhead_gib", "step_cpu_s", "reset_cpu_s", "idle_cores", "think_s", "overlay_gib")
"""Options that are named like the replica's needs."""
_OF_THIS_MACHINE = {
    "this_machine", "image", "usd_per_hour", "as_json", "profile_name", "runtime", "bound", "replica_ram_gib",
    "shared", "thread_efficiency", *OF_REPLICA,
}  # fmt: skip
"""Options that --this-machine takes."""
MARKETS = {"on-demand": Market.ON_DEMAND, "spot": Market.SPOT, "dedicated": Market.DEDICATED}

EPILOG = """\b
Examples
  What do 1,024 desktops cost a day, on whatever is cheapest?
    osgym fleet plan --replicas 1024
  The same as virtual machines, on demand at AWS only, for at most 300 USD a day
    osgym fleet plan --replicas 1024 --runtime qemu --provider aws --market on-demand --budget-usd-per-day 300
  How many fit on the machine that I sit at? And what does each cost, if it costs 0.50 USD an hour?
    osgym fleet plan --this-machine
    osgym fleet plan --this-machine --think-s 20 --usd-per-hour 0.50
  Replicas that rest while their policy thinks 20 s (docs/rest.md)
    osgym fleet plan --replicas 1024 --think-s 20 --rest
  Your own workload: 4 GiB each, nothing shared, a policy that thinks 10 s before each step
    osgym fleet plan --replicas 256 --replica-ram-gib 4 --shared 0 --think-s 10
  A step's CPU work shall take at most 800 ms for 95 of 100 steps, waiting for a core included
    osgym fleet plan --replicas 256 --p95-ms 800
  Trainers elsewhere: count the frames that leave the region; or none, with private addresses in the same zone
    osgym fleet plan --replicas 256 --egress internet
    osgym fleet plan --replicas 256 --egress zone
  Why? A picture of cost against replicas per host: the OSGym paper's parameters and these, side by side
    osgym fleet plan --replicas 512 --type r8i.24xlarge --plot out.png

\b
How it is computed
  A host carries K = min(K_ram, K_cpu, K_disk, cap) replicas, where
    K_ram = (a·RAM − H − M·s·R_ws) / (R_ws·(1 − s) + o)
    K_cpu = ρ·vCPU·τ·ν / u,  u = b + (D + C/n)/(Z + D + C/n)
  and a replica-day costs ([24·P·(1 + w) + disk + IP]/K + frames) / availability.
  R_ws, s, b, D, C, n and Z come from a profile (osgym fleet fit); its pessimistic ends are planned with.
  What is assumed and not measured is said below the answer; docs/cost.md explains all of it.

\b
Exit codes
  0 a plan was found; 1 there is none within the budget, latency or quotas; 2 the input is wrong
"""


WANTED = option_group("What is wanted")
HOSTS = option_group("Hosts")
WORKLOAD = option_group("Workload, instead of the profile's")
PRICES = option_group("Prices")


@click.command(cls=GroupedCommand, epilog=EPILOG, context_settings={"max_content_width": 110})
@WANTED("--replicas", "-n", type=int, help="Number of replicas that run at the same time.")
@WANTED("--this-machine", is_flag=True,
        help="Instead: how many replicas fit on the machine that this command runs on.")  # fmt: skip
@WANTED("--p95-ms", type=float, help="Milliseconds within which 95 % of steps get their CPU work done.")
@WANTED("--budget-usd-per-day", type=float,
        help="Upper bound of the price; above it, fail and say what would do.")  # fmt: skip
@HOSTS("--provider", multiple=True, help="Provider to choose from (aws, gcp, hetzner, …); may be repeated.")
@HOSTS("--region", multiple=True, help="Region to choose from; may be repeated.")
@HOSTS("--market", multiple=True, type=click.Choice(list(MARKETS)),
       help="Market to choose from; may be repeated.")  # fmt: skip
@HOSTS("--type", "types", multiple=True, help="Host type to choose from; may be repeated.")
@HOSTS("--max-hosts", multiple=True, metavar="TYPE=N", help="Quota of a host type; may be repeated.")
@HOSTS("--max-replicas-per-host", type=int, default=Rules().max_replicas, show_default=True,
       help="Number of replicas that may be lost with one host.")  # fmt: skip
@HOSTS("--images", type=int, default=Rules().images, show_default=True,
       help="M: golden images on each host; what replicas share is there once for each.")  # fmt: skip
@HOSTS("--thread-efficiency", type=float, default=Rules().thread_efficiency, show_default=True,
       help="Part of a core that a vCPU is where two share one; 1 for a core each.")  # fmt: skip
@HOSTS("--allow-unknown-kvm", is_flag=True, help="Types on which nobody confirmed KVM, with qemu.")
@HOSTS("--private", is_flag=True, help="Hosts without a public address (so with --egress zone).")
@WORKLOAD("--runtime", metavar="NAME",
          help="Runtime: local, qemu, or one with a --profile; default the profile's, or local.")  # fmt: skip
@WORKLOAD("--profile", "profile_name", default="",
          help="Measured workload: a name or a file of osgym fleet fit; default the runtime's.")  # fmt: skip
@WORKLOAD("--emulated", is_flag=True, help="Virtual machines without KVM, on any host.")
@WORKLOAD("--bound", type=click.Choice([b.value for b in Bound]), default=Bound.PESSIMISTIC.value,
          show_default=True, help="End of the measured intervals to plan with.")  # fmt: skip
@WORKLOAD("--replica-ram-gib", type=float, help="R_ws: memory that a replica touches.")
@WORKLOAD("--shared", type=float, help="s: part of it that is shared copy-on-write, 0 to below 1.")
@WORKLOAD("--overhead-gib", type=float, help="o: host memory per replica beside its own.")
@WORKLOAD("--step-cpu-s", type=float, help="D: CPU-seconds of a step.")
@WORKLOAD("--reset-cpu-s", type=float, help="C: CPU-seconds of a reset, set-up and scoring included.")
@WORKLOAD("--idle-cores", type=float, help="b: cores that an idle replica uses.")
@WORKLOAD("--think-s", type=float, help="Z: seconds between an answer and the next step.")
@WORKLOAD("--overlay-gib", type=float, help="Disk space that an episode writes at most.")
@WORKLOAD("--image", default="full", show_default=True, help="With --this-machine: the golden image.")
@WORKLOAD("--rest", is_flag=True, help="Replicas rest between steps, with compressed swap on each host.")
@PRICES("--egress", type=click.Choice([to.value for to in FramesTo]), default=FramesTo.REGION.value,
        show_default=True, help="Destination of frames: private addresses in the same zone, the region with "
        "public addresses or another zone, or outside of it.")  # fmt: skip
@PRICES("--spot-price", type=click.Choice(["high", "low"]), default="high", show_default=True,
        help="End of a spot price range to plan with.")  # fmt: skip
@PRICES("--interruptions-per-day", type=float, default=1.0, show_default=True,
        help="Number of times a day that a spot host is taken back.")  # fmt: skip
@PRICES("--rebuild-h", type=float, help="Measured hours until a lost spot host is replaced; default "
        f"{Interruptions().rebuild_h}, assumed.")  # fmt: skip
@PRICES("--availability", type=float, default=CostAssumptions().availability, show_default=True,
        help="Part of the time that a paid replica is usable.")  # fmt: skip
@PRICES("--usd-per-hour", type=click.FloatRange(0),
        help="With --this-machine: its price, for the cost of a replica-day.")  # fmt: skip
@PRICES("--rate", multiple=True, metavar="EUR=USD", help="Exchange rate, to include prices in that currency.")
@PRICES("--catalogue", "catalogue_file", type=click.Path(path_type=Path),
        help="File with rows of your own, which override the built-in ones.")  # fmt: skip
@click.option("--top", type=int, default=3, show_default=True, help="Types shown per provider and market.")
@click.option("--plot", type=click.Path(path_type=Path),
              help="File for a plot of cost against K: the paper's values, and the best type.")  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@exits
def plan(
    replicas: int | None, profile_name: str, as_json: bool, plot: Path | None, top: int, **options: Any
) -> None:
    """Find the cheapest hosts for a number of replicas, and say what binds.

    Prices come from a catalogue with sources and dates (osgym fleet catalogue show), what a replica needs
    from a measured profile. Nothing is created and nobody is asked. With --this-machine it says instead how
    many replicas fit here, awake and at rest.
    """
    measured = choose_profile(profile_name, options)
    if options["this_machine"]:
        _plan_this_machine(measured, as_json, options)
        return
    if replicas is None:
        raise click.UsageError("Give --replicas, or --this-machine.")
    if options["rest"] and plot is not None:
        raise BadInput("--plot", "draws replicas that stay awake", "a plan without --rest")
    request = make_request(replicas, measured, options)
    catalogue, left_out = load(options["catalogue_file"]).in_usd(rates(options["rate"]))
    found = plan_fleet(request, catalogue, [measured.source()])
    # Only what could have been chosen is worth a word.
    notes = [n for n in left_out if not request.providers or n.split()[0] in request.providers]
    found = replace(found, notes=(*measured.remarks(request.runtime), *notes, *found.notes))
    lines, old = age_lines(found.sources, today())
    warnings = [*found.warnings, *old]
    if plot is not None:
        _draw(found, plot)
    if as_json:
        click.echo(json.dumps(tables.to_dict(found, measured, lines, warnings), indent=2))
        return
    tables.show(found, measured, lines, warnings, top)
    if plot is not None:
        click.echo(f"picture: {plot}")


def _plan_this_machine(measured: Profile, as_json: bool, options: dict[str, Any]) -> None:
    from osgym_infra.cli import this_machine

    context = click.get_current_context()
    for parameter in context.command.params:
        name = str(parameter.name)
        if context.get_parameter_source(name) is ParameterSource.DEFAULT or name in _OF_THIS_MACHINE:
            continue
        raise BadInput(parameter.opts[0], "has no meaning for --this-machine", "a plan of a fleet")
    if measured.runtime != LOCAL:
        raise BadInput("--runtime", f"{measured.runtime} replicas do not rest", "--runtime local")
    request = make_request(1, measured, options)
    machine = this_machine.read_machine()
    found = this_machine.rows(
        machine, measured, request.replica, Bound(options["bound"]), request.rules,
        options["think_s"], options["usd_per_hour"],
    )  # fmt: skip
    if as_json:
        said = this_machine.to_dict(machine, options["image"], measured, found)
        click.echo(json.dumps(said, indent=2))
        return
    this_machine.show(machine, options["image"], measured, found)


def choose_profile(name: str, options: dict[str, Any]) -> Profile:
    """Return the named profile, or that of the runtime.

    Raises:
        BadInput: No profile has that name, or its runtime has no machines to emulate.
    """
    runtime = options["runtime"]
    if options["emulated"] and runtime is None and not name:
        runtime = QEMU
    found = profiles.load(name) if name and runtime is None else profiles.chosen(
        name, runtime or LOCAL, options["emulated"]
    )  # fmt: skip
    if options["emulated"] and not boots_machines(runtime or found.runtime):
        raise BadInput("--emulated", "means nothing for the local runtime", "--runtime qemu")
    return found


def make_request(replicas: int, measured: Profile, options: dict[str, Any]) -> PlanRequest:
    """Return the planner's request for the options.

    Raises:
        BadInput: Names the option.
    """
    if options["replica_ram_gib"] is not None and options["replica_ram_gib"] <= 0:
        raise BadInput("--replica-ram-gib", f"{options['replica_ram_gib']} GiB", "above 0")
    runtime = options["runtime"] or measured.runtime
    emulated = boots_machines(runtime) and (options["emulated"] or measured.emulated)
    rebuild_h, bound = options["rebuild_h"], Bound(options["bound"])
    return PlanRequest(
        replicas=replicas,
        replica=profiles.with_values(
            replace(measured.replica(bound), rest=measured.rest(bound) if options["rest"] else None),
            working_set_gib=options["replica_ram_gib"],
            shared_fraction=options["shared"],
            **{name: options[name] for name in OF_REPLICA},
        ),
        runtime=runtime,
        rules=Rules(
            max_replicas=options["max_replicas_per_host"],
            thread_efficiency=options["thread_efficiency"],
            images=options["images"],
            # Nothing is nested where KVM takes no part.
            nested_efficiency=1.0 if emulated else Rules().nested_efficiency,
        ),
        terms=CostAssumptions(
            spot=Interruptions(
                per_host_day=options["interruptions_per_day"],
                rebuild_h=Interruptions().rebuild_h if rebuild_h is None else rebuild_h,
                rebuild_measured="" if rebuild_h is None else "--rebuild-h",
            ),
            availability=options["availability"],
            private=options["private"] or options["egress"] == FramesTo.ZONE,
            frames_to=FramesTo(options["egress"]),
        ),
        p95_s=None if options["p95_ms"] is None else options["p95_ms"] / 1000,
        budget_usd_per_day=options["budget_usd_per_day"],
        providers=options["provider"],
        regions=options["region"],
        markets=tuple(MARKETS[name] for name in options["market"]),
        types=options["types"],
        spot_low=options["spot_price"] == "low",
        allow_unknown_kvm=options["allow_unknown_kvm"],
        emulated=emulated,
        max_hosts=quotas(options["max_hosts"]),
    )


def _draw(found: FleetPlan, path: Path) -> None:
    from osgym_infra.cli.plot import draw
    from osgym_infra.cost.curve import of_candidate, of_paper

    draw([of_paper(), of_candidate(found.request, found.candidates[0])], path)
