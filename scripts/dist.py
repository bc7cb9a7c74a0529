"""Build the wheels of all distributions into a folder (`make dist`); the same source gives the same bytes."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from osgym_infra.archives.pack import build_wheels, sha256_of

ROOT = Path(__file__).resolve().parents[1]
DISTRIBUTIONS = sorted(
    str(path.parent.relative_to(ROOT))
    for pattern in ("*", "tasks/*")
    for path in ROOT.glob(f"{pattern}/pyproject.toml")
)


def main() -> None:
    """Replace the wheels in the folder that is named, and print their digests as sha256sum does."""
    target = Path(sys.argv[1])
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    build_wheels(ROOT, DISTRIBUTIONS, target)
    for wheel in sorted(target.iterdir()):
        print(f"{sha256_of(wheel)}  {wheel}")


if __name__ == "__main__":
    main()
