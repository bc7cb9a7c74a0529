"""The Python of a document, run as a user would."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def blocks(document: str) -> list[str]:
    """The fenced Python of a document."""
    return re.findall(r"```python\n(.*?)```", (ROOT / document).read_text("utf-8"), re.DOTALL)


def run_block(code: str, folder: Path, timeout_s: float = 90.0, cwd: Path = ROOT, **env: str) -> str:
    """Runs code in a process of its own, in the repository's root unless told, and gives what it printed."""
    script = folder / "block.py"
    script.write_text(code)
    done = subprocess.run(
        [sys.executable, str(script)],
        capture_output=True,
        text=True,
        timeout=timeout_s,
        cwd=cwd,
        env={**os.environ, **env},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
