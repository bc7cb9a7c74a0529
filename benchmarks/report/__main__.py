"""Write docs/benchmarks.md, its pictures and the tables of benchmarks/README.md from the result files.

    python -m benchmarks.report            # write them
    python -m benchmarks.report --check    # 1 when they are not of the files as they are

Pictures want matplotlib (`pip install 'osgym-infra[plot]'`); without it, those that are not of the files are
named and the exit code is 1.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from benchmarks.report import page, pictures, tables
from benchmarks.report.expressions import BadReference


def written() -> dict[Path, str]:
    """Return the text of each file that is written."""
    return {page.PAGE: page.page(), page.README: tables.document(page.README.read_text(encoding="utf-8"))}


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--check", action="store_true", help="write nothing")
    options = parser.parse_args()
    try:
        texts = written()
    except BadReference as error:
        print(f"a number refers to a missing result: {error}", file=sys.stderr)
        return 1
    old = [path for path, text in texts.items() if not path.is_file() or path.read_text("utf-8") != text]
    stale = pictures.stale(page.PICTURES)
    if options.check:
        for name in [*(path.name for path in old), *(f"{name}.png" for name in stale)]:
            print(f"{name} does not match the result files: run make bench-report", file=sys.stderr)
        return 1 if old or stale else 0
    for path in old:
        path.write_text(texts[path], encoding="utf-8")
        print(f"written: {path.relative_to(page.ROOT)}")
    try:
        pictures.draw(stale, page.PICTURES)
    except ImportError:
        print(f"not drawn, since matplotlib is not installed: {', '.join(stale)}", file=sys.stderr)
        return 1
    for name in stale:
        print(f"drawn: {name}.png")
    return 0


if __name__ == "__main__":
    sys.exit(main())
