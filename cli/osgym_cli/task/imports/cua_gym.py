"""Bundles of CUA-Gym: a folder for each task, whose ``check.sh`` prints a score as JSON.

Files of ``exec/`` are there from the beginning. Those of ``hidden/`` are there while ``setup.sh`` runs, and
are removed before the policy acts. Those of ``gt/`` and the check itself are brought for the check only.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from osgym_cli.task.imports.results import Attempt, Conversion, ImportOptions, attempts
from osgym_cli.task.imports.source import SourceFolder
from osgym_cli.task.imports.staging import (
    check_size,
    make_folder,
    outside_addresses,
    placed,
    removal,
    shell,
    text_parameter,
    uploads,
)

WORKSPACE = "/tmp_workspace"  # noqa: S108 - a path in the desktop, where the original has it
_HIDDEN = f"{WORKSPACE}/.uda_hidden"
_TRUTH = f"{WORKSPACE}/gt"
_CHECK = f"{WORKSPACE}/.osgym_check"
_HARNESS_VARIABLE = re.compile(r"\b(?:CUA_GYM|UDA_GYM)_[A-Z_]+\b")


def find(source: SourceFolder) -> list[str]:
    """Return the folders of bundles."""
    return [folder for folder in source.folders_with("check.sh") if source.has(f"{folder}/instruction.md")]


def convert_all(source: SourceFolder, options: ImportOptions) -> Iterator[Attempt]:
    """Yield the conversion of each bundle."""
    return attempts(source, find(source), lambda place: _convert(source, place, options))


def _convert(source: SourceFolder, place: str, options: ImportOptions) -> Conversion:
    meta = source.object(f"{place}/meta.json")
    name = text_parameter(meta.get("id"), "id of meta.json")
    instruction = text_parameter(source.text(f"{place}/instruction.md"), "instruction.md")
    setup = source.file(f"{place}/setup.sh") if source.has(f"{place}/setup.sh") else None
    check = source.file(f"{place}/check.sh")
    hidden = placed(source.below(f"{place}/hidden"), _HIDDEN)
    scripts = [file.data.decode(errors="replace") for file in (setup, check) if file is not None]
    config = [make_folder(WORKSPACE), *uploads(placed(source.below(f"{place}/exec"), WORKSPACE))]
    if setup is not None:
        config += [
            *uploads({**hidden, f"{_HIDDEN}/setup.sh": setup}),
            shell(f"cd {WORKSPACE} && bash {_HIDDEN}/setup.sh"),
            shell(removal([_HIDDEN])),
        ]
    secret = [_HIDDEN, _TRUTH, _CHECK]
    truth = placed(source.below(f"{place}/gt"), _TRUTH)
    postconfig = [shell(removal(secret)), *uploads({**hidden, **truth, f"{_CHECK}/check.sh": check})]
    check_size([*config, *postconfig])
    command = f"cd {WORKSPACE} && bash {_CHECK}/check.sh; {removal(secret)}"
    task: dict[str, Any] = {
        "id": name,
        "snapshot": "cua-gym",
        "instruction": instruction,
        "config": config,
        "related_apps": [],
        "evaluator": {
            "postconfig": postconfig,
            "func": "check_printed_score",
            "result": {"type": "vm_command_line", "command": ["bash", "-c", command]},
        },
        "osgym": {"flavor": options.flavor, "apps": []},
    }
    return Conversion(task, name, "cua-gym", tuple(_missing(source, place, meta, scripts)))


def _missing(source: SourceFolder, place: str, meta: dict[str, Any], scripts: list[str]) -> list[str]:
    variables = {name for text in scripts for name in _HARNESS_VARIABLE.findall(text)}
    if source.has(f"{place}/harness_env.tsv"):
        rows = source.text(f"{place}/harness_env.tsv").splitlines()
        variables |= {row.split("\t")[0].strip() for row in rows} - {""}
    missing = [f"environment variable {name[:80]} of the set's own harness" for name in sorted(variables)]
    runtime = meta.get("runtime")
    if isinstance(runtime, dict) and isinstance(profile := runtime.get("profile"), str):
        missing.append(f"programs of the image profile {profile[:80]}")
    return [*missing, *outside_addresses(scripts)]
