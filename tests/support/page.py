"""The fenced blocks of a page of the documentation, by its headings."""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Block:
    """One of them.

    Attributes:
        kind: `bash`, `python`, `yaml`; empty: none was said.
    """

    kind: str
    text: str


def sections(page: str) -> dict[str, list[Block]]:
    """Return the blocks of each section of the second level, in their order."""
    found: dict[str, list[Block]] = {}
    heading, kind, inside = "", "", False
    lines: list[str] = []
    for line in page.splitlines(keepends=True):
        if line.startswith("```"):
            if inside:
                found.setdefault(heading, []).append(Block(kind, "".join(lines)))
            inside, kind, lines = not inside, line[3:].strip(), []
        elif inside:
            lines.append(line)
        elif title := re.match(r"## (.*)", line):
            heading = title[1].strip()
    return found
