"""`osgym task new`: a task to begin with, and its oracle beside it."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import click

from osgym_cli.evals.jobs import ORACLE

_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
NOTES = [
    "instruction: what the model is told. Say what the end state is, not how to get there.",
    "config: set-up steps, in this order, before the first screenshot. This one starts an editor and waits "
    "for its window; others put files there (upload_file, download), run commands (execute), open pages.",
    "evaluator: what is looked at in the end. result says where (a file, a command's output, the browser), "
    "expected what it should be, func how they are compared: 1.0 or 0.0. postconfig: steps before that.",
    "osgym: what only OSGym reads, the golden image's flavor and the applications.",
    "Remove these notes when the task is done; hosts do not read them.",
]
EPILOG = """
\b
Examples:
  osgym task new tasks/mousepad/greeting.json
  osgym task check tasks/mousepad/greeting.json          # does it run here
  osgym task run tasks/mousepad/greeting.json --policy oracle --expect 1
  osgym task run tasks/mousepad/greeting.json --policy noop --expect 0

\b
Exit codes: 0 written - 2 there is such a file already, or its name is none for a task.
"""


@click.command(epilog=EPILOG)
@click.argument("path", metavar="FILE", type=click.Path(path_type=Path, dir_okay=False))
@click.option("--force", is_flag=True, help="Overwrite an existing file.")
def new(path: Path, force: bool) -> None:
    """Write a working task with notes on each part, and its oracle beside it.

    The task: write a line into a file with the text editor. Edit it from there.
    """
    if path.suffix != ".json" or not _ID.fullmatch(path.stem) or path.name.endswith(ORACLE):
        raise click.UsageError(
            f"{path.name!r} is not a valid name of a task: use letters, digits, - and _, then .json"
        )
    beside = path.with_name(path.stem + ORACLE)
    for file in (path, beside):
        if file.exists() and not force:
            raise click.UsageError(f"{file} already exists; --force overwrites it")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(skeleton(path.stem), indent=2) + "\n", encoding="utf-8")
        beside.write_text(json.dumps(oracle(), indent=2) + "\n", encoding="utf-8")
    except OSError as error:
        raise click.UsageError(f"{path}: {error.strerror or error}") from error
    click.echo(f"{path}\n{beside}\nNext: osgym task run {path} --policy oracle --expect 1")


def skeleton(name: str) -> dict[str, Any]:
    """The task, in OSWorld's format."""
    return {
        "id": name,
        "snapshot": "mousepad",
        "instruction": 'Write "Hello." (without the quotes) into the empty text that is open, and save it as '
        "/home/user/Documents/hello.txt.",
        "notes": NOTES,
        "config": [
            {"type": "launch", "parameters": {"command": ["mousepad"]}},
            {
                "type": "execute_with_verification",
                "parameters": {
                    "command": ["true"],
                    "verification": {"window_exists": "Mousepad"},
                    "max_wait_time": 30,
                    "check_interval": 0.1,
                },
            },
        ],
        "related_apps": ["mousepad"],
        "evaluator": {
            "func": "check_document_text",
            "result": {"type": "vm_file", "path": "/home/user/Documents/hello.txt", "dest": "hello.txt"},
            "expected": {"type": "rule", "rules": {"paragraphs": ["Hello."]}},
        },
        "osgym": {"flavor": "small", "apps": ["mousepad"]},
    }


def oracle() -> dict[str, Any]:
    """Ways to act in it: one that solves it, and one that is plausible and wrong."""

    def save_as(path: str) -> list[Any]:
        typed = [{"op": "key", "keys": ["ctrl", "a"]}, {"op": "type", "text": path}]
        return [
            [{"op": "type", "text": "Hello."}],
            [{"op": "key", "keys": ["ctrl", "shift", "s"]}],
            {"actions": typed, "settle": "certain"},
            [{"op": "key", "keys": ["enter"]}],
            [{"op": "done"}],
        ]

    return {
        "notes": "near: the right text under another name",
        "oracle": save_as("/home/user/Documents/hello.txt"),
        "near": save_as("/home/user/Documents/hallo.txt"),
    }
