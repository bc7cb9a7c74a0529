"""Build the site of documents: `make site`, or `python docs/site/build.py`; it lands in build/site/html.

The pages are the repository's own Markdown files where they stand, so that links work in both; beside them
come the reference of the Python classes (from their docstrings), of the commands (from their help) and of the
HTTP API (from its OpenAPI description). A link that leads nowhere ends the build. Nothing is downloaded,
neither here nor by who reads it; the search works where a server gives the pages
(`python -m http.server --directory build/site/html`).
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import commands
import http_api

import osgym_sdk

ROOT = Path(__file__).resolve().parents[2]
CONFIG = Path(__file__).with_name("mkdocs.yml")
PAGES = ROOT / "build/site/pages"
LINK = re.compile(r"(\]\(|<img src=\")([^)\s\"]+)")
EXTERNAL = re.compile(r"^[a-z]+:|^#")
BUILD_TIMEOUT_S = 600


class BrokenLinks(Exception):
    """Links that lead nowhere, one to a line."""


def tracked() -> list[str]:
    """Every file of the repository, as a path from its root."""
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True, timeout=60
    )
    return [name for name in listed.stdout.split("\0") if name]


def target_of(page: str, link: str) -> str:
    """Where a link of a page leads, as a path from the root, without its anchor. Pure."""
    path, _, _ = link.partition("#")
    return os.path.normpath(Path(page).parent / path)


def links_of(text: str) -> Iterator[str]:
    """The links of a page that lead to files of the repository. Pure."""
    for match in LINK.finditer(text):
        if not EXTERNAL.match(match[2]):
            yield match[2]


def page_and_files(page: str, text: str, files: frozenset[str]) -> tuple[str, set[str]]:
    """A page with links to folders leading to their README, and the files that it shows or links to. Pure.

    Raises:
        BrokenLinks: some lead to what is not in the repository.
    """
    needed, broken = set(), []
    for link in set(links_of(text)):
        target = target_of(page, link)
        if f"{target}/README.md" in files:
            path, mark, anchor = link.partition("#")
            text = text.replace(f"({link})", f"({path.rstrip('/')}/README.md{mark}{anchor})")
        elif target in files:
            needed.add(target)
        elif any(name.startswith(f"{target}/") for name in files):
            text = re.sub(rf"\[([^\]]*)\]\({re.escape(link)}\)", r"\1", text)
        else:
            broken.append(f"{page}: {link}")
    if broken:
        raise BrokenLinks("\n".join(broken))
    return text, needed


def python_reference() -> str:
    """The page of the SDK's public names. Pure but for the import of the SDK."""
    return "# Python\n\n" + "".join(f"::: osgym_sdk.{name}\n\n" for name in sorted(osgym_sdk.__all__))


def copy_pages() -> int:
    """Lay the pages and what they show into the build folder; how many pages there are.

    Raises:
        BrokenLinks: as above, of all pages together.
    """
    shutil.rmtree(PAGES, ignore_errors=True)
    files = frozenset(tracked())
    pages = [name for name in files if name.endswith(".md") and not name.startswith(("tests/", ".github/"))]
    needed: set[str] = set()
    broken: list[str] = []
    for name in pages:
        try:
            text, more = page_and_files(name, (ROOT / name).read_text(), files)
        except BrokenLinks as error:
            broken.append(str(error))
            continue
        needed |= more
        put(name, text.encode())
    if broken:
        raise BrokenLinks("\n".join(broken))
    for name in needed.difference(pages):
        put(name, (ROOT / name).read_bytes())
    put("reference/python.md", python_reference().encode())
    put("reference/commands.md", commands.page().encode())
    put("reference/http.md", http_api.page().encode())
    return len(pages)


def put(name: str, data: bytes) -> None:
    """Write a file of the pages' folder."""
    path = PAGES / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)


def main() -> int:
    """Build; the exit code is 1 when a link is broken or a page cannot be made."""
    try:
        count = copy_pages()
    except BrokenLinks as error:
        print(f"links that lead nowhere:\n{error}", file=sys.stderr)
        return 1
    build = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--config-file", str(CONFIG)]
    quiet = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(build, cwd=ROOT, env=quiet, timeout=BUILD_TIMEOUT_S).returncode
    if done == 0:
        print(f"{count} pages: {ROOT / 'build/site/html/index.html'}")
    return min(done, 1)


if __name__ == "__main__":
    sys.exit(main())
