"""Task files written from conversions: checked, named, and left alone if nothing changed."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from osgym_cli.task.imports.results import Attempt, Change, Conversion, Outcome, Row
from osgym_cli.task.imports.source import MAX_JSON_BYTES, SourceError, parse_object
from osgym_host.tasks.needs import Verdict, needs_of
from osgym_protocol.limits import MAX_BODY_BYTES

_MAX_NAME = 80


def write_all(layout: str, tried: Iterable[Attempt], out: Path) -> list[Row]:
    """Write the task file of each conversion; return the report.

    Raises:
        OSError: The folder cannot be written.
    """
    rows: list[Row] = []
    taken: dict[Path, str] = {}
    for attempt in tried:
        if attempt.conversion is None:
            rows.append(Row(attempt.place, Outcome.REFUSED, reason=attempt.refusal))
            continue
        try:
            rows.append(_written(layout, attempt, attempt.conversion, out, taken))
        except SourceError as error:
            name = attempt.conversion.original_id
            rows.append(Row(attempt.place, Outcome.REFUSED, name, reason=str(error)))
    return rows


def task_of(layout: str, conversion: Conversion, digest: str) -> dict[str, Any]:
    """Return the task file's content, which says what it was made of."""
    name = conversion.original_id
    origin = {"layout": layout, "id": name, "digest": f"sha256:{digest}"}
    source = conversion.task.get("source") or f"{layout}:{name}"
    return {**conversion.task, "source": source, "imported": origin}


def file_name(text: str) -> str:
    """Return an id as a name of a file or folder; one that had to be changed gets a digest."""
    clean = re.sub(r"[^A-Za-z0-9_-]", "_", text).strip("_")[:_MAX_NAME]
    if clean == text:
        return clean
    return f"{clean}-{hashlib.sha256(text.encode('utf-8', 'surrogatepass')).hexdigest()[:8]}".lstrip("-")


def _written(layout: str, attempt: Attempt, conversion: Conversion, out: Path, taken: dict[Path, str]) -> Row:
    task = task_of(layout, conversion, attempt.digest)
    needs = needs_of(task, None)
    if needs.verdict is Verdict.INVALID:
        raise SourceError(f"the converted task is not valid: {needs.invalid}")
    missing = tuple(dict.fromkeys((*conversion.missing, *needs.accounts, *needs.missing)))
    path = out / file_name(conversion.group) / f"{file_name(conversion.original_id)}.json"
    if (other := taken.setdefault(path, attempt.place)) != attempt.place:
        raise SourceError(f"its id {conversion.original_id!r} is that of {other}")
    outcome = Outcome.INCOMPLETE if missing else Outcome.CONVERTED
    change = _write(path, task)
    urls = tuple(url for url, _ in needs.to_fetch)
    return Row(attempt.place, outcome, conversion.original_id, str(path), change, missing, urls)


def _write(path: Path, task: dict[str, Any]) -> Change:
    """Write a task file whole, unless it is there already.

    Raises:
        SourceError: It is too large for a request, or another task has the name.
    """
    try:
        data = (json.dumps(task, indent=2, ensure_ascii=False) + "\n").encode()
    except (UnicodeEncodeError, RecursionError, ValueError) as error:
        raise SourceError(f"the task cannot be written as JSON: {error}") from None
    if len(data) > MAX_BODY_BYTES:
        raise SourceError(f"the task has {len(data)} bytes; a request carries at most {MAX_BODY_BYTES}")
    change = Change.WRITTEN
    if path.is_symlink() or path.exists():
        before = path.read_bytes() if path.is_file() and not path.is_symlink() else b""
        if before == data:
            return Change.UNCHANGED
        if not _same_origin(before, task):
            raise SourceError(f"{path} exists and was not imported from this task")
        change = Change.UPDATED
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.part")
    part.write_bytes(data)
    part.replace(path)
    return change


def _same_origin(before: bytes, task: dict[str, Any]) -> bool:
    """Return whether a file was imported from the same original, perhaps of another edition."""
    if len(before) > MAX_JSON_BYTES * 2:
        return False
    try:
        old = parse_object(before.decode(errors="replace"), "the file").get("imported")
    except SourceError:
        return False
    new = task["imported"]
    return isinstance(old, dict) and (old.get("layout"), old.get("id")) == (new["layout"], new["id"])
