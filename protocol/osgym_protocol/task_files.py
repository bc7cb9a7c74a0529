"""Inlining of the files that a task names, so that any host can set the task up."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from osgym_protocol.limits import MAX_BODY_BYTES

MAX_INLINED_BYTES = MAX_BODY_BYTES // 4 * 3 - 256 * 1024
"""Size of all files of one task: as base64 they fit into the request that sends it."""
FOLDER = "files"
"""Folder of files beside a task's folder: ``<app>/files/…``. Nothing else there is read."""


class TaskFileError(ValueError):
    """A file that a task names cannot be inlined. ``field`` names its place in the task."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(f"{field}: {message}")
        self.field = field


def inline_files(task: dict[str, Any], path: Path, *, missing_ok: bool = False) -> None:
    """Put the files that ``upload_file`` steps name by ``local_path`` into the task, as ``data_base64``.

    A name is relative to the folder of the task's file, or to the one above it and then of the form
    ``<app>/files/…``. Task files come from strangers: nothing else on this machine is read.

    Args:
        task: Task, which is changed. Malformed parts are left as they are.
        path: Path of the task's file.
        missing_ok: Leave names of missing files; a host may have them.

    Raises:
        TaskFileError: A file is missing, may not be read, or all are too large together.
    """
    left = MAX_INLINED_BYTES
    for field, file in _uploads(task):
        found = _find(file["local_path"], path, field)
        if found is None:
            if missing_ok:
                continue
            name = file["local_path"][:200]
            text = f"the file {name!r} exists neither beside the task nor as <app>/{FOLDER}/… above it"
            raise TaskFileError(field, text)
        try:
            with found.open("rb") as opened:
                data = opened.read(left + 1)
        except OSError as exc:
            raise TaskFileError(field, f"{found}: {exc.strerror or exc}") from exc
        left -= len(data)
        if left < 0:
            raise TaskFileError(field, f"the task's files have more than {MAX_INLINED_BYTES} bytes together")
        del file["local_path"]
        file["data_base64"] = base64.b64encode(data).decode("ascii")


def task_digest(task: Mapping[str, Any]) -> str:
    """Return the SHA-256 of a task with its files inside, the same for every spelling of its JSON.

    A certificate is valid for the task of one digest. `osgym.reach`, which only says what a policy's client
    may do, is left out.
    """
    extras = task.get("osgym")
    if isinstance(extras, Mapping):
        task = {**task, "osgym": {name: value for name, value in extras.items() if name != "reach"}}
    text = json.dumps(task, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()


def _uploads(task: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield each file of an ``upload_file`` step that is named by a path, and its place in the task."""
    evaluator = task.get("evaluator")
    after = evaluator.get("postconfig") if isinstance(evaluator, dict) else None
    for name, steps in (("config", task.get("config")), ("evaluator.postconfig", after)):
        for index, step in enumerate(steps if isinstance(steps, list) else ()):
            if not isinstance(step, dict) or step.get("type") != "upload_file":
                continue
            given = step.get("parameters")
            files = given.get("files") if isinstance(given, dict) else None
            for number, file in enumerate(files if isinstance(files, list) else ()):
                if isinstance(file, dict) and isinstance(file.get("local_path"), str):
                    yield f"{name}[{index}].parameters.files[{number}].local_path", file


def _find(name: str, path: Path, field: str) -> Path | None:
    """Return the path of a named file; None when it is missing.

    Raises:
        TaskFileError: The name leads elsewhere.
    """
    parts = PurePosixPath(name).parts
    if not parts or "\0" in name or name.startswith("/") or ".." in parts:
        raise TaskFileError(field, f"{name[:200]!r} is not a plain name of a file beside the task")
    folder = path.absolute().parent
    candidates = [(folder, folder.joinpath(*parts))]
    if len(parts) > 2 and parts[1] == FOLDER:
        candidates.append((folder.parent / parts[0] / FOLDER, folder.parent.joinpath(*parts)))
    for root, candidate in candidates:
        if not candidate.is_file():
            continue
        if not candidate.resolve().is_relative_to(root.resolve()):
            raise TaskFileError(field, f"{name[:200]!r} leads out of the task's folder")
        return candidate
    return None
