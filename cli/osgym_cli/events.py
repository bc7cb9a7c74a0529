"""`osgym host events`: what happened on a running host agent, as it happens with `--follow`."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

import click

from osgym_cli.host_client import HostClient, host_options
from osgym_host.cli.terminal import EXIT_INTERRUPTED
from osgym_host.logs import escape_controls

WAIT_S = 15
"""Seconds that one request waits for the next event; less than the deadline of `HostClient.get`."""
MAX_PAUSE_S = 5.0
_SHOWN_FIRST = ("id", "time", "kind", "state", "replica_id", "episode_id")


@click.command()
@host_options
@click.option("-f", "--follow", is_flag=True, help="Print new events, also after a restart.")
@click.option(
    "-n",
    "--lines",
    type=click.IntRange(0),
    help="Number of newest events; default all that are kept.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON, an event in each line.")
def events(host: HostClient, follow: bool, lines: int | None, as_json: bool) -> None:
    """Show what happened on a running host agent: replicas that come and go, episodes, failures.

    \b
    Examples:
      osgym host events -n 20
      osgym host events -f
      osgym host events -f --json | jq 'select(.state == "failed")'

    Times are this machine's. Ctrl-C ends --follow with exit code 130.
    """
    try:
        answer = _after(host, 0, 0)
        kept = answer["events"]
        for event in kept if lines is None else kept[len(kept) - min(lines, len(kept)) :]:
            _print(event, as_json)
        if follow:
            for event in _following(host, answer["last_id"]):
                _print(event, as_json)
    except KeyboardInterrupt:
        raise SystemExit(EXIT_INTERRUPTED) from None


def _following(host: HostClient, last_id: int) -> Iterator[Mapping[str, Any]]:
    """Yield every event after one without end; wait for an agent that is away."""
    away = False
    while True:
        pause_s = 0.25
        try:
            answer = _after(host, last_id, WAIT_S)
        except click.ClickException as error:
            if not away:
                click.echo(f"osgym host events: {error.message}; retrying", err=True)
            away, pause_s = True, MAX_PAUSE_S if away else pause_s
            time.sleep(pause_s)
            continue
        if away:
            click.echo("osgym host events: the host answers again", err=True)
        away = False
        if answer["last_id"] < last_id:  # it restarted, and counts anew
            last_id = 0
            continue
        if answer["events"] and answer["events"][0]["id"] > last_id + 1 and last_id:
            lost = answer["events"][0]["id"] - last_id - 1
            click.echo(f"osgym host events: {lost} events in between are no longer kept", err=True)
        yield from answer["events"]
        last_id = answer["last_id"]


def _after(host: HostClient, last_id: int, wait_s: int) -> dict[str, Any]:
    found: dict[str, Any] = host.get(f"/v1/events?after={last_id}&wait_s={wait_s}").json()
    return found


def _print(event: Mapping[str, Any], as_json: bool) -> None:
    click.echo(json.dumps(event) if as_json else line_of(event))


def line_of(event: Mapping[str, Any]) -> str:
    """Format an event as one line of printable text. Pure but for the time zone."""
    at = datetime.fromtimestamp(event["time"]).astimezone().strftime("%Y-%m-%d %H:%M:%S")
    whom = event.get("episode_id") if event["kind"] == "episode" else event.get("replica_id")
    rest = {name: value for name, value in event.items() if name not in _SHOWN_FIRST and value is not None}
    if event["kind"] == "episode" and event.get("replica_id"):
        rest = {"replica": event["replica_id"], **rest}
    said = " ".join(f"{name}={value}" for name, value in rest.items())
    return escape_controls(
        f"{at}  {event['kind']:8} {whom or '-':18} {event.get('state') or '-':10} {said}"
    ).rstrip()
