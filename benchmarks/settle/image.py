"""Bake the benchmark's own image: the full desktop, and the applications of `applications.toml`.

The definition is the repository's with these laid over it, so the image has the same desktop and remedies.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from osgym_host.images.definition import find_images_folder

FLAVOR = "settle"
LIKE = "full"
TRACE = "/tmp/settle-trace.jsonl"
OVERLAY = Path(__file__).with_name("applications.toml")


def definition(golden: str, overlay: str) -> str:
    """A golden image's definition with another flavor, which has the applications of `LIKE` too. Pure.

    Args:
        golden: `golden.toml`.
        overlay: groups and the flavor, to be added.
    """
    lists = re.compile(rf'^(flavors = \[.*"{LIKE}")\]$', re.MULTILINE)
    binaries = re.compile(rf"^{LIKE} = (\[.*\])$", re.MULTILINE)
    golden = lists.sub(rf'\1, "{FLAVOR}"]', golden)
    golden = binaries.sub(rf"{LIKE} = \1\n{FLAVOR} = \1", golden)
    return f"{golden}\n{overlay}"


def bake(*, record: bool = False) -> int:
    """Bake it with `osgym image build`; the exit code is that of the bake.

    Args:
        record: guest agents write down their signals in `TRACE`.
    """
    with tempfile.TemporaryDirectory(prefix="osgym-settle-") as scratch:
        folder = Path(scratch) / "images"
        shutil.copytree(find_images_folder(), folder, symlinks=True)
        golden = folder / "golden.toml"
        golden.write_text(definition(golden.read_text(), OVERLAY.read_text()))
        if record:
            with (folder / "files/etc/osgym/environment").open("a") as environment:
                environment.write(f"export OSGYM_SETTLE_TRACE={TRACE}\n")
        build = [sys.executable, "-m", "osgym_host", "image", "build", "--flavor", FLAVOR]
        return subprocess.run(build, env={**os.environ, "OSGYM_IMAGES_DIR": str(folder)}).returncode
