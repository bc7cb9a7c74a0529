"""`osgym host openapi`: the description of the HTTP API, as committed in `host_agent/openapi.json`."""

from __future__ import annotations

import json
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

import click

from osgym_host.app import HostAgent
from osgym_host.runtimes.base import ImageManifestLike
from osgym_host.runtimes.kind import ImageRef
from osgym_host.settings import Settings


@dataclass(frozen=True)
class _NoManifest:
    uid_base: int = 0
    gid_base: int = 0


@dataclass(frozen=True)
class _NoImage:
    digest: str = ""
    rootfs: Path = Path("/nonexistent")
    manifest: ImageManifestLike = field(default_factory=_NoManifest)


@click.command(
    epilog="\b\nExamples:\n  osgym host openapi > openapi.json\n",
)
def openapi() -> None:
    """Print the OpenAPI description of the HTTP API."""
    with tempfile.TemporaryDirectory() as folder:
        settings = Settings(data_dir=Path(folder), trajectory="off")
        schema = HostAgent(settings, ImageRef(_NoImage(), "")).app().openapi()
    click.echo(json.dumps(schema, indent=1, ensure_ascii=False))
