"""The folder of a run: its parameters and finished episodes, so that an interrupted run can be resumed."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from osgym_cli.evals.jobs import Job
from osgym_cli.evals.rows import Row, read_rows
from osgym_protocol.version import __version__

SAME = ("agent", "model", "arguments", "max_steps", "on_invalid")
"""Parameters that a resumed run may not change, because all its episodes are counted together."""


class RunFolderError(click.UsageError):
    """The folder cannot be used for this run; the message says what to do."""


@dataclass
class RunFolder:
    """Folder of one run, ``--out``.

    Attributes:
        how: Parameters of the run, as kept in ``run.json``.
        rows: Rows of the episodes that need not be run again.
    """

    path: Path
    how: dict[str, Any]
    rows: list[Row] = field(default_factory=list)

    @classmethod
    def open(cls, path: Path, how: Mapping[str, Any], resume: bool) -> RunFolder:
        """Open the folder for a new run, or for a run that is resumed.

        Raises:
            RunFolderError: It holds another run, or it cannot be written.
        """
        now = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
        described: dict[str, Any] = {**how, "started": now, "version": __version__}
        try:
            before = _read(path / "run.json")
            if before is not None and not resume:
                raise RunFolderError(
                    f"{path} already has a run: continue it with --resume, or name another --out"
                )
            if before is not None:
                _check_same(path, before, how)
                described["started"] = before.get("started", now)
            (path / "trajectories").mkdir(parents=True, exist_ok=True)
            made = cls(path, described)
            made.rows = [row for row in read_rows(made.results) if row.is_finished]
            _write(made.results, "".join(row.to_line() for row in made.rows))
            _write(path / "run.json", json.dumps(described, indent=1, default=str) + "\n")
        except OSError as exc:
            raise RunFolderError(f"cannot use {path}: {exc.strerror or exc}") from exc
        return made

    @property
    def results(self) -> Path:
        return self.path / "results.jsonl"

    @property
    def trajectories(self) -> Path:
        return self.path / "trajectories"

    def left(self, jobs: Sequence[Job]) -> list[Job]:
        """Return the jobs that are not finished."""
        done = {row.key for row in self.rows}
        return [job for job in jobs if job.key not in done]

    def add(self, row: Row) -> None:
        """Append a row to the results. Raises OSError if the file cannot be written."""
        with self.results.open("a", encoding="utf-8", errors="replace") as file:
            file.write(row.to_line())

    def finish(self, interrupted: bool, usage: Any) -> None:
        """Keep how the run ended; ``usage`` counts all requests of the model, also in lost attempts."""
        self.how["interrupted"] = interrupted
        totals = getattr(usage, "to_dict", None)
        if callable(totals):
            self.how["usage_of_this_part"] = totals()
        _write(self.path / "run.json", json.dumps(self.how, indent=1, default=str) + "\n")


def _check_same(path: Path, before: Mapping[str, Any], how: Mapping[str, Any]) -> None:
    for name in SAME:
        was, now = before.get(name), how.get(name)
        if _plain(was) != _plain(now):
            raise RunFolderError(
                f"{path} was run with {name}={was!r:.100}, not {now!r:.100}: name another --out"
            )


def _read(path: Path) -> dict[str, Any] | None:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except ValueError as exc:
        raise RunFolderError(f"{path} cannot be read: {exc}") from exc
    return found if isinstance(found, dict) else {}


def _write(path: Path, content: str) -> None:
    part = path.with_name(f".{path.name}.part")
    part.write_text(content, encoding="utf-8", errors="replace")
    part.replace(path)


def _plain(value: Any) -> Any:
    return json.loads(json.dumps(value, default=str))
