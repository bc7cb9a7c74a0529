"""Where a cloud's host stands that does not answer yet: the last record on its console."""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess

from osgym_infra.cli.fleet_ops.text import escaped
from osgym_infra.fleet.boot_status import last_on_console
from osgym_infra.fleet.fleet_file import FleetHost, IapAccess, SsmAccess

CONSOLE_S = 20.0
MOST_NOTES = 8
"""Consoles that are read at the same time: each is a process of the cloud's command."""


async def boot_note(host: FleetHost, gate: asyncio.Semaphore) -> str:
    """The record in words; empty where the host has no console that we can read, or nothing on it."""
    argv = console_argv(host)
    if argv is None or shutil.which(argv[0]) is None:
        return ""
    async with gate:
        text = await asyncio.to_thread(_output, argv)
    found = last_on_console(text)
    return "" if found is None else escaped(f"boot: {found.line()}", 500)


def console_argv(host: FleetHost) -> list[str] | None:
    """The cloud's command that prints a host's console (AWS CLI: ec2 get-console-output; Google Cloud SDK:
    compute instances get-serial-port-output)."""
    match host.access:
        case SsmAccess(instance=instance, region=region):
            argv = ["aws", "ec2", "get-console-output", "--latest", "--output", "json"]
            return [*argv, "--instance-id", instance, "--region", region]
        case IapAccess(instance=instance, zone=zone, project=project):
            argv = ["gcloud", "compute", "instances", "get-serial-port-output", instance]
            return [*argv, f"--zone={zone}", f"--project={project}"]
        case _:
            return None


def _output(argv: list[str]) -> str:
    try:
        done = subprocess.run(
            argv, stdin=subprocess.DEVNULL, capture_output=True, timeout=CONSOLE_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    text = done.stdout.decode(errors="replace")
    if argv[0] != "aws":
        return text
    try:
        return str(json.loads(text)["Output"])
    except (ValueError, KeyError, TypeError):
        return ""
