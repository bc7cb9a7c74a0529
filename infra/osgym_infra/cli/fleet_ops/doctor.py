"""`osgym fleet doctor`: the findings of `osgym doctor` on each host."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from osgym_infra.cli.common import exits
from osgym_infra.cli.fleet_ops.discover import with_found
from osgym_infra.cli.fleet_ops.options import interruptible, json_option, many_options, needs_ops, ssh_options
from osgym_infra.cli.fleet_ops.outcome import HostFailure, HostOutcome, answer, exit_code
from osgym_infra.cli.fleet_ops.table import FAILED, HostTable, say_failures
from osgym_infra.cli.fleet_ops.text import escaped
from osgym_infra.fleet.managed import read_fleet

if TYPE_CHECKING:
    from osgym_infra.cli.fleet_ops.group import Finished

COLUMNS = {"HOST": 16, "STATE": 8, "CHECKS": 22, "NOTE": 0}
SCRIPT = """
agent=/opt/osgym/current/bin/osgym
[ -x $agent ] || { echo "osgym-doctor: no agent in /opt/osgym"; exit 3; }
[ ! -f /etc/osgym/bootstrap.env ] || . /etc/osgym/bootstrap.env
exec runuser -u osgym -- $agent doctor --json "$@" --data-dir "${OSGYM_DATA:-/var/lib/osgym}"
"""
"""As the account that the agent runs as: what root could do there says nothing."""
MOST_CHECKS = 200


@click.command(
    epilog="\b\nExamples:\n"
    "  osgym fleet doctor\n"
    "  osgym fleet doctor --host '10.0.*' --quick --json\n"
    "\n\b\nExit codes: 0 all hosts can run it - 1 some cannot, or do not answer - 2 wrong usage.\n"
)
@many_options(deadline_s=120)
@ssh_options
@click.option("--quick", is_flag=True, help="Do not boot virtual machines.")
@json_option
@interruptible
@exits
def doctor(
    fleet_path: Path, patterns: tuple[str, ...], parallel: int, deadline_s: float, ssh_user: str | None,
    ssh_key: Path | None, quick: bool, as_json: bool,
) -> None:  # fmt: skip
    """Say what each host can run, found out by trying it there, and how to get what is missing."""
    needs_ops()
    from osgym_infra.cli.fleet_ops.group import RemoteJob, run_on_all, with_login
    from osgym_infra.cli.fleet_ops.watchers import Silent

    hosts = with_login(with_found(read_fleet(fleet_path)).select(patterns), ssh_user, ssh_key)
    job = RemoteJob(("sh", "-c", SCRIPT, "doctor", *(["--quick"] if quick else [])), True, deadline_s, 0)
    found: dict[str, HostOutcome] = {}

    class Watcher(Silent):
        def finished(self, done: Finished) -> None:
            found[done.host.id] = outcome = judged(done)
            table.done(done.host.id, cells(outcome), FAILED if outcome.failure else "")

    with HostTable(COLUMNS, [host.id for host in hosts], silent=as_json) as table:
        run_on_all(hosts, job, parallel, Watcher())
    outcomes = [found[host.id] for host in hosts]
    if as_json:
        click.echo(json.dumps(answer(outcomes), indent=2))
    else:
        _say_findings(outcomes)
        say_failures(outcomes)
    sys.exit(exit_code(outcomes))


def judged(done: Finished) -> HostOutcome:
    """Return a host's outcome from its output, none of which is trusted. Pure."""
    if done.failure is not None:
        return HostOutcome(done.host.id, done.failure)
    answered = _json_in(done.text)
    if answered is None:
        last = done.text.strip().splitlines()[-1:] or ["(it printed nothing)"]
        problem = f"exit code {done.exit_code}: {escaped(last[0])}"
        remedy = "the agent may not be installed; `pulumi up` installs it"
        return HostOutcome(done.host.id, HostFailure("doctor", problem, remedy))
    checks = [
        {name: escaped(str(row.get(name, "")), 500) for name in ("name", "status", "found", "remedy")}
        for row in answered["checks"][:MOST_CHECKS]
        if isinstance(row, Mapping)
    ]
    works = answered.get("local_runtime") is True
    failure = None
    if not works:
        missing = ", ".join(row["name"] for row in checks if row["status"] == "missing")
        failure = HostFailure("doctor", f"replicas cannot run there: {missing or 'no reason given'}",
                              f"`osgym fleet ssh {done.host.id}`, then follow the "
                              "remedies of the checks")  # fmt: skip
    return HostOutcome(done.host.id, failure, {"local_runtime": works, "checks": checks})


def cells(outcome: HostOutcome) -> tuple[str, str, str]:
    """Return the columns after the first."""
    checks: list[dict[str, str]] = list(outcome.found.get("checks", []))
    count = {status: sum(row["status"] == status for row in checks) for status in ("ok", "warn", "missing")}
    shown = ", ".join(f"{number} {status}" for status, number in count.items() if number)
    note = "" if outcome.failure is None else outcome.failure.problem
    return "failed" if outcome.failure else "well", shown, note


def _say_findings(outcomes: list[HostOutcome]) -> None:
    """Print each finding once, with all hosts that have it."""
    hosts: dict[tuple[str, str, str], list[str]] = {}
    remedies: dict[tuple[str, str, str], str] = {}
    for outcome in outcomes:
        for row in outcome.found.get("checks", []):
            if row["status"] != "ok":
                hosts.setdefault((row["status"], row["name"], row["found"]), []).append(outcome.host)
                remedies.setdefault((row["status"], row["name"], row["found"]), row["remedy"])
    for key, names in hosts.items():
        status, name, found = key
        more = f" and {len(names) - 5} more" if len(names) > 5 else ""
        click.echo(f"{status}: {name}: {found} ({', '.join(map(escaped, names[:5]))}{more})")
        if remedies[key]:
            click.echo(f"    {remedies[key]}")


def _json_in(text: str) -> dict[str, Any] | None:
    """Return the doctor's JSON, which may follow a login message."""
    begin = text.find("{\n")
    try:
        found, _ = json.JSONDecoder().raw_decode(text, begin) if begin >= 0 else (None, 0)
    except ValueError:
        return None
    return found if isinstance(found, dict) and isinstance(found.get("checks"), list) else None
