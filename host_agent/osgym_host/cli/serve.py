"""`osgym host serve`: the host agent in the foreground."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import logging
import os
import resource
import sys
import time
from pathlib import Path
from typing import Any

import click

from osgym_host import logs
from osgym_host.app import HostAgent
from osgym_host.errors import OsgymHostError
from osgym_host.http import dashboard
from osgym_host.images.errors import ImageError
from osgym_host.logs import escape_controls, escape_lines
from osgym_host.pidfile import AlreadyRunning, held, pid_path
from osgym_host.runtime_factory import find_images
from osgym_host.runtime_registry import runtime_names
from osgym_host.runtimes.base import DataDirBusy, ReplicaDestroyFailed, RuntimeFault
from osgym_host.server import HostServer, bind, urls
from osgym_host.settings import Settings, SettingsError, load
from osgym_host.tracing import StepTracer, tracer_from
from osgym_protocol.telemetry import TelemetryError

log = logging.getLogger(__name__)

EXIT_LEFTOVERS = 1
EXIT_SETTINGS = 2
EXIT_CANNOT_RUN = 3
EXIT_BUSY = 4

EPILOG = """\b
Examples:
  osgym host serve --set image=small --set trajectory=frames
  osgym host serve --config config.yaml
  OSGYM_TOKEN="$(cat token)" osgym host serve --host 0.0.0.0 --port 20000 --port 20001
  osgym host serve --runtime qemu --warm 8 --max-replicas 128

\b
Exit codes: 0 stopped cleanly (Ctrl-C, SIGTERM) - 1 something could not be removed - 2 wrong setting -
3 this machine or the image cannot run it - 4 a port or the data directory is in use.
Every setting can stand in the config file, in OSGYM_<NAME>, or in --set name=value; SETTINGS.md has all.
"""
LARGE_BYTES = 1024 * 1024
_M_MMAP_THRESHOLD = -3
"""Option of glibc's malloc.h."""


def _pairs(ctx: click.Context, param: click.Parameter, values: tuple[str, ...]) -> dict[str, str]:
    pairs = {}
    for value in values:
        name, equals, text = value.partition("=")
        if not equals:
            raise click.BadParameter(f"{value!r} is not name=value")
        pairs[name.strip().replace("-", "_")] = text
    return pairs


@click.command(epilog=EPILOG)
@click.option("--config", type=click.Path(path_type=Path), help="Config file (YAML).")
@click.option("--host", help="Address to listen on; default 127.0.0.1.")
@click.option("--port", "ports", type=int, multiple=True, help="Port; repeat for several. Default 20000.")
@click.option(
    "--runtime", metavar=f"[{'|'.join(runtime_names())}]", help="Runtime of replicas; default local."
)
@click.option("--image", help="Golden image: full, small, an import's name, or a prefix of a digest.")
@click.option("--warm", type=int, help="Number of clean replicas kept ready.")
@click.option("--max-replicas", type=int, help="Greatest number of replicas at once.")
@click.option("--data-dir", type=click.Path(path_type=Path), help="Folder of images and run state.")
@click.option("--set", "pairs", multiple=True, callback=_pairs, metavar="NAME=VALUE", help="Any setting.")
def serve(config: Path | None, ports: tuple[int, ...], pairs: dict[str, str], **flags: Any) -> None:
    """Run the host agent: warm desktops, the API v1 and the OSGym API.

    Listens on loopback unless told otherwise. Ctrl-C removes every desktop before it returns.
    """
    given: dict[str, Any] = {**pairs, **{name: value for name, value in flags.items() if value is not None}}
    if ports:
        given["ports"] = list(ports)
    try:
        settings = load(config, os.environ, given)
        tracer = tracer_from(os.environ)
    except (SettingsError, TelemetryError) as error:
        _fail(str(error), EXIT_SETTINGS)
    give_back_large_blocks()
    logs.configure(settings.log_level, settings.log_format)
    if settings.log_level != "debug":
        for noisy in ("uvicorn", "httpx", "httpcore", "asyncio"):
            logging.getLogger(noisy).setLevel(logging.WARNING)
    _allow_many_files()
    sys.exit(asyncio.run(_serve(settings, tracer)))


def _allow_many_files() -> None:
    """Raise the soft bound on open files to the hard one: each replica takes some, and 1,024 is usual."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _fail(message: str, code: int) -> Any:
    click.echo(f"osgym: {message}", err=True)
    sys.exit(code)


async def _serve(settings: Settings, tracer: StepTracer | None) -> int:
    try:
        images = find_images(settings)
    except ImageError as error:
        return _say(settings, f"{error}" + (f": {error.hint}" if error.hint else ""), EXIT_CANNOT_RUN)
    try:
        sockets = bind(settings)
    except OSError as error:
        return _say(settings, str(error), EXIT_BUSY)
    try:
        agent = HostAgent(settings, images[0], tracer=tracer, more_images=images[1:])
        server = HostServer(agent.app(), settings, agent.begin_stop, agent.end_episodes)
        with held(pid_path(settings.data_dir, settings.instance)), server.listen_to_signals():
            return await _run(agent, server, settings, sockets)
    except (AlreadyRunning, DataDirBusy) as error:
        return _say(settings, str(error), EXIT_BUSY)
    except ReplicaDestroyFailed as error:
        return _say(settings, f"not everything could be removed: {error}", EXIT_LEFTOVERS)
    except (RuntimeFault, OsgymHostError, OSError) as error:
        return _say(settings, str(error), EXIT_CANNOT_RUN)
    finally:
        for sock in sockets:
            sock.close()


async def _run(agent: HostAgent, server: HostServer, settings: Settings, sockets: list[Any]) -> int:
    where = urls(settings, sockets)
    await agent.start()
    progress = asyncio.create_task(_show_warming(agent, settings))
    try:
        click.echo(f"OSGym listens on {' '.join(where)}")
        click.echo(f"Dashboard: {where[0]}{dashboard.PATH}")
        await server.serve(sockets=sockets)
    finally:
        progress.cancel()
        began = time.monotonic()
        _note(settings, "removing the desktops …")
        await agent.stop()
        _note(settings, f"stopped in {time.monotonic() - began:.1f} s; everything was removed")
    return 0


async def _show_warming(agent: HostAgent, settings: Settings) -> None:
    """Show how the pool fills, until it is full for the first time."""
    tty = sys.stderr.isatty() and settings.log_format == "text"
    began = time.monotonic()
    shown: tuple[object, ...] = ()
    number = 0
    while not agent.events.closed:  # closed, it no longer waits: this loop would never yield
        pool = agent.view.pool()
        warm, ready = pool["warm_target"], pool["ready"] + pool["leased"]
        if ready >= warm:
            ending = f"ready: {ready} desktops in {time.monotonic() - began:.1f} s"
            _note(settings, f"\r\x1b[K{ending}" if tty else ending)
            return
        failure = escape_controls(pool["last_failure"].splitlines()[0][:200]) if pool["last_failure"] else ""
        if (ready, failure) != shown or tty:
            shown = (ready, failure)
            text = f"{ready}/{warm} desktops ready, {pool['starting']} starting" + (
                f": {failure}" if failure else ""
            )
            if tty:
                click.echo(f"\r\x1b[K{text}", err=True, nl=False)
            else:
                _note(settings, text)
        events = await agent.events.after(number, 2.0)
        number = events[-1]["id"] if events else number


def _say(settings: Settings, message: str, code: int) -> int:
    if settings.log_format == "json":
        log.error("%s", message)
    else:
        click.echo(f"osgym: {escape_lines(message)}", err=True)
    return code


def _note(settings: Settings, message: str) -> None:
    """Say how it goes on stderr, which has nothing but JSON where that is asked for."""
    if settings.log_format == "json":
        log.info("%s", message)
    else:
        click.echo(message, err=True)


def give_back_large_blocks() -> None:
    """Make blocks of `LARGE_BYTES` and more be returned as soon as they are freed, for the whole process.

    glibc starts so with 128 KiB, but raises that to 32 MiB with the first large block that is freed. Later
    ones then come from a heap that shrinks only at its end. Setting a threshold turns the raising off. Other
    C libraries are left as they are.
    """
    with contextlib.suppress(AttributeError, OSError):
        ctypes.CDLL(None).mallopt(_M_MMAP_THRESHOLD, LARGE_BYTES)
