"""`osgym host top`: hosts and their busiest desktops in a terminal, again and again."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import click
import httpx
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from osgym_cli.host_client import (
    HostClient,
    async_client,
    format_span,
    host_list_options,
    json_option,
    memory_mib,
)
from osgym_host.cli.terminal import EXIT_INTERRUPTED
from osgym_host.logs import escape_controls

TIMEOUT_S = 5.0


@dataclass(frozen=True, slots=True)
class HostLook:
    """Answers of one host.

    Attributes:
        at_s: Time of the answers on the monotonic clock.
        error: Reason why it did not answer; empty if it did.
        state: Answer of `GET /v1/host`; pool: of `GET /v1/pool`; replicas: of `GET /v1/replicas`.
        sample: Newest sample of `GET /v1/history`; None before the first.
    """

    url: str
    at_s: float
    error: str = ""
    state: Mapping[str, Any] = field(default_factory=dict)
    pool: Mapping[str, Any] = field(default_factory=dict)
    replicas: Sequence[Mapping[str, Any]] = ()
    sample: Mapping[str, Any] | None = None


@click.command()
@host_list_options
@click.option("--every", "every_s", type=click.FloatRange(0.5, 60), default=2.0, show_default=True,
              help="Seconds between two refreshes.")  # fmt: skip
@click.option("--once", is_flag=True, help="Print one table and exit, as --json does.")
@json_option
@click.option("-n", "--rows", type=click.IntRange(0), help="Number of desktops; default: what fits.")
def top(hosts: list[HostClient], every_s: float, once: bool, as_json: bool, rows: int | None) -> None:
    """Show hosts and their busiest desktops, refreshed until Ctrl-C.

    \b
    Examples:
      osgym host top
      osgym host top --host http://10.0.0.5:20000,http://10.0.0.6:20000
      osgym host top --once --rows 5

    A host that serves several golden images has a row for each, with its replicas and the clients that wait.
    AT REST is the number of replicas that are only paused, plus that of those with their memory in swap.
    Steps, their times and the share of frames that were not final (LATE) cover the last ten seconds that the
    host summed up. A host that does not answer has a row with the reason, and --once then exits with 1.
    """
    console = Console()
    try:
        if once or as_json or not console.is_terminal:
            looks = asyncio.run(_look_once(hosts))
            if as_json:
                click.echo(json.dumps([_as_json(look) for look in looks], indent=2))
            else:
                console.print(page(looks, {}, 10**6 if rows is None else rows))
            raise SystemExit(1 if any(look.error for look in looks) else 0)
        asyncio.run(_keep_looking(hosts, every_s, rows, console))
    except KeyboardInterrupt:
        raise SystemExit(EXIT_INTERRUPTED) from None


async def _look_once(hosts: Sequence[HostClient]) -> list[HostLook]:
    async with async_client(hosts[0].token, TIMEOUT_S) as client:
        return await _looks(client, hosts)


async def _keep_looking(
    hosts: Sequence[HostClient], every_s: float, rows: int | None, console: Console
) -> None:
    before: dict[str, HostLook] = {}
    async with async_client(hosts[0].token, TIMEOUT_S) as client:
        with Live(console=console, screen=True, auto_refresh=False) as live:
            while True:
                looks = await _looks(client, hosts)
                fits = max(0, console.height - len(hosts) - 4) if rows is None else rows
                live.update(page(looks, before, fits), refresh=True)
                before = {look.url: look for look in looks}
                await asyncio.sleep(every_s)


async def _looks(client: httpx.AsyncClient, hosts: Sequence[HostClient]) -> list[HostLook]:
    return await asyncio.gather(*(_look(client, host.url) for host in hosts))


async def _look(client: httpx.AsyncClient, url: str) -> HostLook:
    async def asked(path: str) -> Any:
        answer = await client.get(f"{url}/v1/{path}")
        answer.raise_for_status()
        return answer.json()

    try:
        async with asyncio.timeout(TIMEOUT_S):
            state, pool, replicas, history = await asyncio.gather(
                asked("host"), asked("pool"), asked("replicas"), asked("history")
            )
    except httpx.HTTPStatusError as error:
        code = error.response.status_code
        needs = ": set OSGYM_TOKEN to the host's token" if code == httpx.codes.UNAUTHORIZED else ""
        return HostLook(url, time.monotonic(), f"{code} {error.response.reason_phrase}{needs}")
    except (httpx.HTTPError, httpx.InvalidURL, ValueError, TimeoutError) as error:
        return HostLook(url, time.monotonic(), str(error) or f"no answer in {TIMEOUT_S:g} s")
    samples = history["samples"]
    return HostLook(url, time.monotonic(), "", state, pool, replicas, samples[-1] if samples else None)


def page(looks: Sequence[HostLook], before: Mapping[str, HostLook], rows: int) -> Group:
    """Return the page. Pure.

    Args:
        before: Previous answers by URL, from which shares of CPU time are computed.
        rows: Number of desktops.
    """
    found = sorted(
        ((cpu, look, replica) for look in looks for replica, cpu in _with_cpu(look, before.get(look.url))),
        key=lambda row: (row[0] is not None, row[0] or 0.0, row[2]["state"] == "leased"),
        reverse=True,
    )
    shown: list[RenderableType] = [_hosts(looks), Text()]
    if any(len(look.state.get("images", ())) > 1 for look in looks):
        shown += [_images(looks), Text()]
    if rows and found:
        several = len(looks) > 1
        shown.append(_desktops(found[:rows], several))
        if len(found) > rows:
            shown.append(Text(f"and {len(found) - rows} more", style="dim"))
    return Group(*shown)


def _with_cpu(look: HostLook, before: HostLook | None) -> list[tuple[Mapping[str, Any], float | None]]:
    """Return a host's replicas, each with the share of a core that it used since the previous answer."""
    used = {} if before is None else {row["replica_id"]: row["cpu_s"] for row in before.replicas}
    passed_s = 0.0 if before is None else look.at_s - before.at_s
    found: list[tuple[Mapping[str, Any], float | None]] = []
    for row in look.replicas:
        earlier, now = used.get(row["replica_id"]), row["cpu_s"]
        known = earlier is not None and now is not None and passed_s > 0
        found.append((row, max(0.0, now - earlier) / passed_s if known else None))
    return found


def _hosts(looks: Sequence[HostLook]) -> Table:
    table = Table(box=None, pad_edge=False)
    for name in ("HOST", "STATE"):
        table.add_column(name, no_wrap=True)
    figures = (
        "LEASED",
        "READY",
        "AT REST",
        "WAITING",
        "STEPS/S",
        "STEP P50",
        "P95",
        "LATE",
        "LOAD",
        "RAM FREE",
        "DISK FREE",
    )
    for name in figures:
        table.add_column(name, justify="right", no_wrap=True)
    for look in looks:
        table.add_row(*_host_row(look))
    return table


def _host_row(look: HostLook) -> list[Text]:
    name = _text(str(look.state.get("host_id") or look.url))
    if look.error:
        return [_text(look.url), _text(look.error, "bold red")]
    capacity, load, sample = look.state["capacity"], look.state["load"], look.sample
    blocked = look.pool["blocked"]
    state = Text("serving", "green")
    if look.state["draining"]:
        state = Text("draining", "yellow")
    elif blocked != "nothing":
        state = _text(f"blocked by {blocked}", "yellow")
    steps = sample["steps"] if sample else 0
    took_ms = sample["step_ms"] if sample else {"p50": None, "p95": None}
    figures = [
        f"{capacity['leased']}/{capacity['max_replicas']}",
        f"{capacity['ready']}+{capacity['starting']}",
        f"{capacity.get('paused', 0)}+{capacity.get('reclaimed', 0)}",
        str(capacity["waiting"]),
        "-" if sample is None else f"{sample['steps_per_s']:.1f}",
        _ms(took_ms["p50"]),
        _ms(took_ms["p95"]),
        f"{100 * sample['not_final'] / steps:.0f} %" if sample and steps else "-",
        f"{load['load1']:.1f}/{load['cpu_count']}",
        f"{load['ram_available_mib'] / 1024:.1f} GiB",
        f"{load['disk_free_mib'] / 1024:.0f} GiB",
    ]
    return [name, state, *map(Text, figures)]


def _images(looks: Sequence[HostLook]) -> Table:
    """Return the golden images of hosts that serve several, with their replicas."""
    table = Table(box=None, pad_edge=False)
    for name in ("HOST", "IMAGE", "DIGEST"):
        table.add_column(name, no_wrap=True)
    for name in ("LEASED", "READY", "WARM WANTED", "WAITING"):
        table.add_column(name, justify="right", no_wrap=True)
    for look in looks:
        images = look.state.get("images", ())
        for image in images if len(images) > 1 else ():
            names = (look.state["host_id"], image["flavor"], image["digest"][:12])
            counts = (
                image["leased"],
                f"{image['ready']}+{image['starting']}",
                image["warm"],
                image["waiting"],
            )
            table.add_row(*(_text(str(cell)) for cell in (*names, *counts)))
    return table


def _desktops(found: Sequence[tuple[float | None, HostLook, Mapping[str, Any]]], several: bool) -> Table:
    table = Table(box=None, pad_edge=False)
    for name in (*(("HOST",) if several else ()), "REPLICA", "STATE", "REST", "TASK"):
        table.add_column(name, no_wrap=True)
    for name in ("STEP", "IDLE", "AGE", "CPU", "RAM", "DISK"):
        table.add_column(name, justify="right", no_wrap=True)
    for cpu, look, row in found:
        state = row["state"] if row["reason"] is None else f"{row['state']} ({row['reason']})"
        cells = [
            *([_text(str(look.state["host_id"]))] if several else []),
            _text(row["replica_id"]),
            _text(state),
            _text(row.get("rest") or "-"),
            _text(str(row["task_id"] or "-")[:40]),
            Text("-" if row["step"] is None else str(row["step"])),
            Text("-" if row["idle_s"] is None else format_span(row["idle_s"])),
            Text(format_span(row["age_s"])),
            Text("-" if cpu is None else f"{100 * cpu:.0f} %"),
            Text(_mib(memory_mib(row))),
            Text(_mib(row["overlay_mib"])),
        ]
        table.add_row(*cells)
    return table


def _as_json(look: HostLook) -> dict[str, Any]:
    names = ("url", "error", "state", "pool", "replicas", "sample")
    return {name: getattr(look, name) for name in names}


def _text(said: str, style: str = "") -> Text:
    """Return text that neither moves the cursor nor is read as markup."""
    return Text(escape_controls(said), style)


def _ms(value: float | None) -> str:
    return "-" if value is None else f"{value:.0f} ms"


def _mib(value: float | None) -> str:
    return "-" if value is None else f"{value:.0f} MiB"
