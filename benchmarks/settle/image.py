"""Image of the benchmark: the full desktop, and the applications of `applications.toml`.

The definition is the repository's, extended by these, so the image has the same desktop and remedies.
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
PLAIN_FLAVOR = "settle-plain"
LIKE = "full"
TRACE = "/tmp/settle-trace.jsonl"
OVERLAY = Path(__file__).with_name("applications.toml")


def definition(golden: str, overlay: str, flavor: str = FLAVOR) -> str:
    """Return a golden image's definition with another flavor, which has the applications of `LIKE` too. Pure.

    Args:
        golden: Text of `golden.toml`.
        overlay: Groups and the flavor `FLAVOR`, to be added.
        flavor: Name of the flavor here.
    """
    overlay = overlay.replace(f"[flavors.{FLAVOR}]", f"[flavors.{flavor}]")
    lists = re.compile(rf'^(flavors = \[.*"{LIKE}")\]$', re.MULTILINE)
    binaries = re.compile(rf"^{LIKE} = (\[.*\])$", re.MULTILINE)
    golden = lists.sub(rf'\1, "{flavor}"]', golden)
    golden = binaries.sub(rf"{LIKE} = \1\n{flavor} = \1", golden)
    return f"{golden}\n{overlay}"


def bake(*, record: bool = False, remedies: bool = True) -> int:
    """Bake it with `osgym image build`; return the exit code of the bake.

    Args:
        record: Guest agents write their signals into `TRACE`.
        remedies: Without them the flavor is `PLAIN_FLAVOR`: applications as Debian has them.
    """
    flavor = FLAVOR if remedies else PLAIN_FLAVOR
    with tempfile.TemporaryDirectory(prefix="osgym-settle-") as scratch:
        folder = Path(scratch) / "images"
        shutil.copytree(find_images_folder(), folder, symlinks=True)
        golden = folder / "golden.toml"
        golden.write_text(definition(golden.read_text(), OVERLAY.read_text(), flavor))
        if not remedies:
            shutil.rmtree(folder / "remedies")
        if record:
            with (folder / "files/etc/osgym/environment").open("a") as environment:
                environment.write(f"export OSGYM_SETTLE_TRACE={TRACE}\n")
        build = [sys.executable, "-m", "osgym_host", "image", "build", "--flavor", flavor]
        return subprocess.run(build, env={**os.environ, "OSGYM_IMAGES_DIR": str(folder)}).returncode
