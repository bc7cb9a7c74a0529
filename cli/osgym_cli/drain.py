"""`osgym host drain`: empties a running host agent before it is updated, restarted or switched off."""

from __future__ import annotations

import json
import time
from typing import Any

import click

from osgym_cli.host_client import HostClient, host_options, json_option

LOOK_S = 0.5


@click.command(
    epilog="\b\nExamples:\n"
    "  osgym host drain\n"
    "  osgym host drain --deadline-s 600 --wait    empty in ten minutes; come back then\n"
    "  osgym host drain --stop                     serve again\n"
    "\n\b\nExit codes: 0 done - 1 the host agent does not answer, or refuses.\n",
)
@host_options
@json_option
@click.option("--deadline-s", type=click.FloatRange(min=0), help="Seconds until every episode is ended.")
@click.option("--wait", is_flag=True, help="Return when no episode is open.")
@click.option("--stop", is_flag=True, help="Stop draining: accept new episodes again.")
def drain(host: HostClient, as_json: bool, deadline_s: float | None, wait: bool, stop: bool) -> None:
    """Drain a running host agent: it accepts no new episodes, and clients with open episodes are told.

    Without --deadline-s, open episodes run until their clients end them. A restarted host agent serves again.
    """
    if stop:
        if wait or deadline_s is not None:
            raise click.UsageError("--stop cannot be combined with --wait or --deadline-s")
        state = host.call("DELETE", "/v1/drain", timeout_s=20).json()
    else:
        body = json.dumps({"deadline_s": deadline_s}).encode()
        headers = {"Content-Type": "application/json"}
        state = host.call("POST", "/v1/drain", content=[body], headers=headers, timeout_s=20).json()
    while wait and state["capacity"]["leased"]:
        time.sleep(LOOK_S)
        state = host.get("/v1/host").json()
    click.echo(json.dumps(state, indent=2) if as_json else _status_line(state))


def _status_line(state: dict[str, Any]) -> str:
    leased = state["capacity"]["leased"]
    if not state["draining"]:
        return f"serving, {leased} replicas in use"
    notice = state.get("notice") or {"kind": "stopping", "deadline": None}
    until = ""
    if notice["deadline"] is not None:
        until = f", {max(0.0, notice['deadline'] - time.time()):.0f} s left"
    return f"draining ({notice['kind']}{until}), {leased} replicas in use"
