"""`osgym host support-bundle`: versions, settings, state and log of a host in one file, without secrets."""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import gzip
import importlib.metadata
import io
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import click
from pydantic import SecretStr

from osgym_cli.host_client import HostClient, host_options
from osgym_host import settings
from osgym_host.doctor.examination import examine
from osgym_host.doctor.result import DoctorContext
from osgym_host.images.store import default_data_dir

ASKED = {
    "host.json": "/v1/host",
    "pool.json": "/v1/pool",
    "replicas.json": "/v1/replicas",
    "episodes.json": "/v1/episodes?limit=1000",
    "events.json": "/v1/events",
    "history.json": "/v1/history",
    "metrics.txt": "/metrics",
}
"""File in the bundle → path of the host agent's API."""
LOG_UNITS = ("osgym.service", "osgym-boot.service")
MAX_LOG_BYTES = 8 * 1024 * 1024
LOG_TIMEOUT_S = 30
MIN_SECRET_CHARS = 6
_SECRET_NAME = re.compile(r"token|secret|password|passwd|credential|api_?key|private_?key", re.IGNORECASE)
_IN_TEXT = (
    (re.compile(r"(?i)(authorization\W{1,4}(?:bearer|basic)\s+)[^\s\"',]+"), r"\1***"),
    (re.compile(r"([a-z][a-z0-9+.-]*://)[^\s/@:\"']+:[^\s/@\"']+@"), r"\1***@"),
    (
        re.compile(
            r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)", re.DOTALL
        ),
        "*** private key ***",
    ),
)


@click.command(
    "support-bundle",
    epilog="\b\nExamples:\n"
    "  osgym host support-bundle\n"
    "  osgym host support-bundle --config config.yaml --log-hours 24 --out bundle.tar.gz\n",
)
@host_options
@click.option("-o", "--out", type=click.Path(path_type=Path, dir_okay=False),
              help="File to write; default osgym-support-HOST-TIME.tar.gz here.")  # fmt: skip
@click.option("--config", type=click.Path(path_type=Path, exists=True, dir_okay=False),
              help="Config file of the host agent, if it has one.")  # fmt: skip
@click.option("--deep", is_flag=True, help="Let `osgym doctor` boot virtual machines too.")
@click.option("--log-hours", type=click.FloatRange(0, 168), default=2.0, show_default=True,
              help="Hours of the service's log in the journal.")  # fmt: skip
def support_bundle(
    host: HostClient, out: Path | None, config: Path | None, deep: bool, log_hours: float
) -> None:
    """Collect what is needed to diagnose this host into one file, without secrets.

    Versions, `osgym doctor`, settings, and of the host agent, if it answers: its state, replicas, episodes,
    events, the last hour and metrics; the log of the systemd units. No screenshots, trajectories, task files.
    Tokens, passwords and keys of settings and environment are left out wherever they stand; host names,
    addresses, paths and task names are not. The file is readable by you only: look at it before you send it.
    """
    parts: dict[str, Callable[[], str]] = {
        "versions.json": _versions,
        "doctor.json": lambda: _doctor(deep),
        "settings.json": lambda: _settings(config),
        "log.txt": lambda: _log(log_hours),
        **{name: functools.partial(_answer, host, path) for name, path in ASKED.items()},
    }
    given = [host.token] if host.token else []
    redact = redactor([*secrets(os.environ), *_secret_settings(config), *given])
    found: dict[str, str] = {}
    with click.progressbar(parts.items(), label="collecting", show_pos=True, file=sys.stderr) as bar:
        for name, collect in bar:
            try:
                found[name] = redact(collect())
            except (
                click.ClickException,
                OSError,
                subprocess.SubprocessError,
                settings.SettingsError,
            ) as error:
                message = error.message if isinstance(error, click.ClickException) else str(error)
                found[f"{name}.error"] = redact(f"{message}\n")
    file = out or Path(f"osgym-support-{platform.node() or 'host'}-{time.strftime('%Y%m%d-%H%M%S')}.tar.gz")
    _write(file, found)
    for name, text in found.items():
        click.echo(f"  {name:22} {len(text):>9,} characters", err=True)
    click.echo(file)


def secrets(environment: Mapping[str, str]) -> list[str]:
    """Return the values of the environment that are secrets by their names, the longest first; pure."""
    values = {value for name, value in environment.items() if _SECRET_NAME.search(name)}
    return sorted((value for value in values if len(value) >= MIN_SECRET_CHARS), key=len, reverse=True)


def redactor(values: Iterable[str]) -> Callable[[str], str]:
    """Return a function that takes these values, and what looks like a secret, out of a text; pure."""
    known = {text for value in values for text in (value, json.dumps(value)[1:-1])}
    patterns = [(re.compile(re.escape(value)), "***") for value in sorted(known, key=len, reverse=True)]

    def redact(text: str) -> str:
        for pattern, instead in (*patterns, *_IN_TEXT):
            text = pattern.sub(instead, text)
        return text

    return redact


def _versions() -> str:
    names = sorted(
        {name for dist in importlib.metadata.distributions() if (name := dist.metadata["Name"] or "")}
    )
    released = {}
    if hasattr(platform, "freedesktop_os_release"):
        try:
            released = platform.freedesktop_os_release()
        except OSError:
            released = {}
    return _json(
        {
            "collected_at": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
            "python": platform.python_version(),
            "kernel": platform.release(),
            "machine": platform.machine(),
            "os": released.get("PRETTY_NAME", platform.platform()),
            "cpu_count": os.cpu_count(),
            "packages": {name: importlib.metadata.version(name) for name in names},
        }
    )


def _doctor(deep: bool) -> str:
    context = DoctorContext(data_dir=default_data_dir(), replicas=4, kernel=None, deep=deep)
    return _json([dataclasses.asdict(result) for result in asyncio.run(examine(context))])


def _settings(config: Path | None) -> str:
    """Return the settings of an agent that starts now; secret ones show as stars."""
    return settings.load(config, os.environ).model_dump_json(indent=2) + "\n"


def _secret_settings(config: Path | None) -> list[str]:
    try:
        loaded = settings.load(config, os.environ)
    except settings.SettingsError:  # the bundle says why
        return []
    values = (getattr(loaded, name) for name in type(loaded).model_fields)
    return [value.get_secret_value() for value in values if isinstance(value, SecretStr)]


def _answer(host: HostClient, path: str) -> str:
    text = host.get(path).text
    return text if path == "/metrics" else _json(json.loads(text))


def _log(hours: float) -> str:
    if shutil.which("journalctl") is None:
        raise click.ClickException("missing: journalctl")
    units = [f"--unit={unit}" for unit in LOG_UNITS]
    argv = ["journalctl", *units, "--no-pager", "--output=short-iso", f"--since=-{round(hours * 60)}min"]
    done = subprocess.run(argv, capture_output=True, timeout=LOG_TIMEOUT_S, check=False)
    if done.returncode != 0:
        raise click.ClickException(done.stderr.decode("utf-8", "replace").strip() or "journalctl failed")
    return done.stdout[-MAX_LOG_BYTES:].decode("utf-8", "replace")


def _write(file: Path, parts: Mapping[str, str]) -> None:
    """Write the bundle whole or not at all, for its owner only.

    Raises:
        click.ClickException: The file cannot be written.
    """
    folder = file.name.removesuffix(".tar.gz")
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, text in parts.items():
            data = text.encode("utf-8", "replace")
            entry = tarfile.TarInfo(f"{folder}/{name}")
            entry.size, entry.mode, entry.mtime = len(data), 0o600, round(time.time())
            archive.addfile(entry, io.BytesIO(data))
    partial = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        partial.touch(0o600, exist_ok=False)
        partial.write_bytes(gzip.compress(buffer.getvalue()))
        partial.replace(file)
    except OSError as error:
        raise click.ClickException(f"{file} cannot be written: {error.strerror}") from error
    finally:
        partial.unlink(missing_ok=True)


def _json(value: Any) -> str:
    return json.dumps(value, indent=2, default=str) + "\n"
