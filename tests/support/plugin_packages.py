"""Installs the example extensions as their users would, into a folder of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def install_plugin(name: str, folder: Path) -> dict[str, str]:
    """Installs `examples/plugins/NAME` into a folder; returns the environment in which it is found."""
    source = folder / "source"
    target = folder / "site"
    subprocess.run(
        ["cp", "-r", ROOT / "examples" / "plugins" / name, source], check=True
    )  # builds leave files
    argv = [sys.executable, "-m", "pip", "install", "-q", "--no-deps"]
    subprocess.run([*argv, "--target", target, source], check=True)
    return {"PYTHONPATH": str(target)}
