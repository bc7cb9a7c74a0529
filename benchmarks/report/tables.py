"""Tables of benchmarks/README.md, each between its marks."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping
from typing import Any

from benchmarks.report.expressions import BadReference, filled
from benchmarks.report.page import table

MARKED = re.compile(r"<!-- table ([\w-]+): `make bench-report` writes it -->\n.*?<!-- end -->", re.DOTALL)


def _replaced(text: str, one: Mapping[str, Any], words: list[str]) -> str:
    for name, meaning in one.get("let", {}).items():
        text = text.replace(name, meaning)
    for place, word in enumerate(words, 1):
        text = text.replace(f"${place}", word)
    return filled(text)


def rows_of(one: Mapping[str, Any]) -> Iterator[list[str]]:
    """Yield the cells of each row of a table, filled.

    Raises:
        BadReference: A number is in no file.
    """
    for row in one["rows"]:
        cells, words = (one["cells"], row) if "cells" in one else (row, [])
        yield [_replaced(cell, one, words) for cell in cells]


def written(one: Mapping[str, Any]) -> str:
    lines = [one["header"], ["---"] * len(one["header"]), *rows_of(one)]
    return "\n".join(
        "|" + "|".join("---" if cell == "---" else f" {cell} " for cell in line) + "|" for line in lines
    )


def document(text: str) -> str:
    """Return benchmarks/README.md with all its tables written anew.

    Raises:
        BadReference: Marks name a table that is not in tables.toml, or one of it has no marks.
    """
    texts = {one["name"]: written(one) for one in table("tables")["table"]}
    seen = set()

    def one(match: re.Match[str]) -> str:
        name = match[1]
        if name not in texts:
            raise BadReference(
                f"benchmarks/README.md has marks of a table {name}, which is not in tables.toml"
            )
        seen.add(name)
        return f"<!-- table {name}: `make bench-report` writes it -->\n{texts[name]}\n<!-- end -->"

    text = MARKED.sub(one, text)
    if left := sorted(texts.keys() - seen):
        raise BadReference(f"benchmarks/README.md has no marks of {', '.join(left)}")
    return text


def unmarked(text: str) -> list[str]:
    """Return the header lines of the tables that are between no marks."""
    rest = MARKED.sub("", text).splitlines()
    return [a for a, b in itertools.pairwise(rest) if a.startswith("|") and re.fullmatch(r"\|[-|]+\|", b)]
