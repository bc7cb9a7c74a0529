"""`osgym demo`: real desktops at work, in one command."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path

import click
from rich.console import Console
from rich.live import Live

from osgym_cli.demo.play import Play, Player, PolicyName, make_plays, record
from osgym_cli.demo.report import contact_sheet, table
from osgym_cli.demo.service import ServiceFailed, local_service
from osgym_cli.episode_options import Hosts
from osgym_cli.host_client import host_option, token_option
from osgym_host.cli.terminal import EXIT_INTERRUPTED, interrupt_once
from osgym_host.images.errors import ImageNotFound
from osgym_host.images.store import ImageStore, default_data_dir
from osgym_host.tasks.shipped import load_shipped

SCREEN = (1920, 1080)
WIDTH = 120
"""Columns of the table where there is no terminal."""
EXIT_WRONG = 1


@click.command(
    epilog="\b\nExamples:\n"
    "  osgym demo --flavor small\n"
    "  osgym demo --only mousepad --replicas 2 --out out/demo\n"
    "  osgym demo --host http://10.0.0.5:20000               a host agent that runs\n",
)
@click.option("--flavor", type=click.Choice(["small", "full"]), default="full", show_default=True,
              help="Golden image.")  # fmt: skip
@click.option("--replicas", type=click.IntRange(1, 256), default=4, show_default=True,
              help="Number of desktops that work at once.")  # fmt: skip
@click.option(
    "--out", type=click.Path(path_type=Path, file_okay=False), default=Path("out"), show_default=True,
    help="Folder of the results.",
)  # fmt: skip
@click.option("--tasks", type=click.Path(path_type=Path, exists=True), help="Folder of tasks; default: ours.")
@click.option("--only", multiple=True, metavar="TEXT", help="Text in the names of tasks; repeatable.")
@click.option("--seed", type=int, default=0, show_default=True, help="Seed of the random policy.")
@host_option("URLS", "Running host agents, separated by commas, instead of one of the demo's own.")
@token_option
def demo(
    flavor: str,
    replicas: int,
    out: Path,
    tasks: Path | None,
    only: tuple[str, ...],
    seed: int,
    host: str | None,
    token: str | None,
) -> None:
    """Run every task by its oracle and by chance on real desktops, and show what happened.

    Bakes the golden image if there is none, serves on loopback, runs REPLICAS desktops at a time through the
    public client, and stops everything at the end. `--flavor small` has no office suite and no browser: it
    has fewer tasks and bakes a minute faster.

    \b
    Exit codes: 0 every oracle earned 1.0 - 1 an oracle did not, or something failed - 130 Ctrl-C.
    """
    chosen = [t for t in load_shipped(tasks, flavor=flavor) if not only or any(o in t.name for o in only)]
    if not chosen:
        raise click.ClickException("--only: no task has that text in its name")
    if host is None:
        _bake_if_missing(flavor)
    folder = out / f"demo-{datetime.now():%Y%m%d-%H%M%S}"
    folder.mkdir(parents=True)
    plays = make_plays(chosen, folder, seed, SCREEN)
    console = Console(width=None if sys.stdout.isatty() else WIDTH)
    try:
        with _view(console, plays) as changed:
            elapsed_s = asyncio.run(_run(plays, flavor, replicas, Hosts(host, token=token), folder, changed))
    except ServiceFailed as error:
        raise click.ClickException(str(error)) from error
    except (KeyboardInterrupt, asyncio.CancelledError):
        console.print("stopped; no process was left running")
        sys.exit(EXIT_INTERRUPTED)
    sys.exit(_summary(console, plays, folder, elapsed_s, flavor))


def _bake_if_missing(flavor: str) -> None:
    try:
        ImageStore(default_data_dir()).resolve(flavor)
    except ImageNotFound:
        click.echo(
            f"The golden image {flavor} does not exist yet and is baked now; later runs reuse it.", err=True
        )
        process = subprocess.Popen([sys.executable, "-m", "osgym_host", "image", "build", "--flavor", flavor])
        while True:
            try:
                code = process.wait()
                break
            except KeyboardInterrupt:  # the bake got it too, and removes what it made
                continue
        if code != 0:
            sys.exit(code if code > 0 else EXIT_INTERRUPTED)


@contextlib.contextmanager
def _view(console: Console, plays: list[Play]) -> Iterator[Callable[[Play], None]]:
    """Show a live table on a terminal, a line for each finished episode elsewhere."""
    if not console.is_terminal:

        def line(play: Play) -> None:
            if play.state in {"done", "failed"}:
                reward = play.failure or f"reward {play.reward}"
                click.echo(f"{play.task.name} by {play.policy}: {reward}, {len(play.step_ms)} steps")

        yield line
        return
    with Live(console=console, refresh_per_second=4, transient=True, get_renderable=lambda: table(plays)):
        yield lambda play: None


async def _run(
    plays: list[Play],
    flavor: str,
    replicas: int,
    hosts: Hosts,
    folder: Path,
    changed: Callable[[Play], None],
) -> float:
    """Play everything; return the seconds from the first reset to the last reward."""
    interrupt_once("removing the desktops …")
    if hosts.urls is None:
        click.echo(f"Starting a host agent with {replicas} warm desktops …", err=True)
    async with contextlib.AsyncExitStack() as stack:
        if hosts.urls is None:
            service = local_service(flavor, replicas, folder / "service.log")
            hosts = Hosts(await stack.enter_async_context(service))
        client = await stack.enter_async_context(hosts.client())
        click.echo(f"Playing {len(plays)} episodes on {hosts.urls}, {replicas} at once …", err=True)
        player = Player(plays, changed)
        began = time.monotonic()
        batch = client.run(player.tasks(), player, concurrency=replicas, keep_frames=True)
        async for result in batch:
            play = player.play_of(result.task)
            await asyncio.to_thread(record, play, result)
            changed(play)
        return time.monotonic() - began


def _summary(console: Console, plays: list[Play], folder: Path, elapsed_s: float, flavor: str) -> int:
    sheet = folder / "contact-sheet.png"
    contact_sheet(plays, sheet)
    console.print(table(plays))
    done = [p for p in plays if p.reward is not None]
    console.print(
        f"\n{len(done)} trajectories in {elapsed_s:.1f} s: "
        f"[bold]{60 * len(done) / elapsed_s:.0f} trajectories per minute[/bold]"
    )
    console.print(f"Screens:      {sheet}\nTrajectories: {folder / 'trajectories'}", highlight=False)
    console.print(
        f"\nNext: osgym host serve --set image={flavor}, and docs/start.md "
        "to watch a policy and take over its desktop.",
        highlight=False,
    )
    wrong = [
        p
        for p in plays
        if p.failure or (p.policy is PolicyName.ORACLE and p.reward is not None and p.reward < 1)
    ]
    for play in wrong:
        why = play.failure or play.note
        console.print(f"[bold red]{play.task.name} by {play.policy}[/bold red]: {why}", highlight=False)
    return EXIT_WRONG if wrong or len(done) < len(plays) else 0
