"""Output of the `osgym image` commands, those of extensions included: errors, progress, tables."""

from __future__ import annotations

import contextlib
import json
import signal
import sys
from collections.abc import Iterator, Mapping, Sequence
from types import FrameType

import click
from rich.console import Console
from rich.table import Table

from osgym_host.errors import OsgymHostError
from osgym_host.images.calibration import calibration_path
from osgym_host.images.errors import BakeError, ImageError
from osgym_host.images.progress import BakeProgress, ProgressDisplay
from osgym_host.images.store import Image, ImageStore
from osgym_host.logs import escape_lines

MIB = 1 << 20


@contextlib.contextmanager
def errors_reported(command: str = "image") -> Iterator[None]:
    """Report an error in the block of a command with its remedy, and exit with 1."""
    try:
        yield
    except OsgymHostError as exc:
        if isinstance(exc, BakeError) and exc.log_tail:
            # A guest's console: each line is marked as its own.
            click.echo("  | " + escape_lines(exc.log_tail).replace("\n", "\n  | "), err=True)
        click.echo(f"osgym {command}: {escape_lines(str(exc))}", err=True)
        if isinstance(exc, ImageError) and exc.hint:
            click.echo(f"  {exc.hint}", err=True)
        sys.exit(1)


def bake_progress(as_json: bool) -> BakeProgress:
    """Return the progress display of a command: bars on a terminal, lines elsewhere, nothing with --json."""
    bars = ProgressDisplay.BARS if sys.stderr.isatty() else ProgressDisplay.LINES
    return BakeProgress(ProgressDisplay.NONE if as_json else bars)


def image_row(image: Image, store: ImageStore) -> dict[str, object]:
    """Return the fields of a golden image in lists and JSON."""
    manifest = image.manifest
    return {
        "digest": image.digest,
        "flavor": image.name,
        "tagged": store.is_tagged(image),
        "size_mib": manifest.size_bytes // MIB,
        "packages": len(manifest.packages),
        "created_at": manifest.created_at,
        "rootfs": str(image.rootfs),
        "calibrated": calibration_path(image.folder).exists(),
        "session_isolated": manifest.session_isolated,
        "bake_s": manifest.bake_s,
    }


def print_rows(rows: Sequence[Mapping[str, object]], columns: Mapping[str, str], as_json: bool) -> None:
    """Print rows as JSON, or as a table; `columns` gives each heading the format of its cells."""
    if as_json:
        click.echo(json.dumps(rows))
        return
    table = Table(*columns, box=None)
    for row in rows:
        cells = {**row, "tag": "*" if row["tagged"] else ""}
        cells["calibrated"] = "*" if row.get("calibrated") else ""
        table.add_row(*(form.format(**cells) for form in columns.values()))
    Console().print(table)


def stop_on_signals() -> None:
    """Let SIGTERM and SIGHUP unwind a command as Ctrl-C does, so that it cleans up after itself."""

    def stop(number: int, frame: FrameType | None) -> None:
        del frame
        raise SystemExit(128 + number)

    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, stop)
