"""Tasks of OpenComputer: criteria over the JSON that a verifier program of the application prints.

The program runs in the desktop and is brought for the check only. Each criterion compares a key of its
output, or is an expression over the output; the reward is the share of the criteria that hold.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from typing import Any

from osgym_cli.task.imports.results import Attempt, Conversion, ImportOptions, attempts
from osgym_cli.task.imports.source import SourceError, SourceFile, SourceFolder
from osgym_cli.task.imports.staging import (
    Step,
    check_size,
    launch,
    plain_path,
    removal,
    shell,
    text_parameter,
    uploads,
)
from osgym_host.tasks.evaluator.expressions import ExpressionRefused, check_expression
from osgym_host.tasks.schema import MAX_METRICS

_VERIFIERS = "/home/user/verifiers"
_CREATE = "/tmp/create_env.py"  # noqa: S108 - a path in the desktop, where the original has it
_PROGRAMS: Mapping[str, list[str]] = {
    "chrome": ["google-chrome"], "galculator": ["galculator"], "gimp": ["gimp"], "mousepad": ["mousepad"],
    "libreoffice_calc": ["libreoffice", "--calc"], "libreoffice_draw": ["libreoffice", "--draw"],
    "libreoffice_impress": ["libreoffice", "--impress"], "libreoffice_writer": ["libreoffice", "--writer"],
    "pcmanfm": ["pcmanfm"], "thunderbird": ["thunderbird"], "vlc": ["vlc"],
}  # fmt: skip
"""Commands that start the applications of golden images, by OpenComputer's names."""


def find(source: SourceFolder) -> list[str]:
    """Return the folders of tasks."""
    found = []
    for folder in source.folders_with("task.json"):
        try:
            task = source.object(f"{folder}/task.json")
        except SourceError:
            continue
        if isinstance(task.get("verification"), list):
            found.append(folder)
    return found


def convert_all(source: SourceFolder, options: ImportOptions) -> Iterator[Attempt]:
    """Yield the conversion of each task."""
    return attempts(source, find(source), lambda place: _convert(source, place, options))


def _convert(source: SourceFolder, place: str, options: ImportOptions) -> Conversion:
    original = source.object(f"{place}/task.json")
    name = text_parameter(original.get("id"), "id")
    app = text_parameter(original.get("app"), "app")
    if not app.replace("_", "").replace("-", "").isalnum():
        raise SourceError(f"app {app[:80]!r} is no name of an application")
    verifier = _verifier(source, app, options)
    program = f"{_VERIFIERS}/{app}.py"
    config, missing = _config(source, place, original, app)
    criteria, left_out = _criteria(original["verification"])
    postconfig = [shell(removal([_VERIFIERS])), *uploads({program: verifier})]
    check_size([*config, *postconfig])
    commands = [f"python3 {program} {shlex.join(words)}" for words, _ in criteria]
    commands[-1] += f"; {removal([_VERIFIERS])}"
    task: dict[str, Any] = {
        "id": name,
        "snapshot": app,
        "instruction": text_parameter(original.get("task"), "task"),
        "config": config,
        "related_apps": [app],
        "evaluator": {
            "postconfig": postconfig,
            "func": ["check_printed_value"] * len(criteria),
            "conj": "partial",
            "weights": [1] * len(criteria),
            "result": [{"type": "vm_command_line", "command": ["bash", "-c", text]} for text in commands],
            "expected": [{"type": "rule", "rules": rules} for _, rules in criteria],
        },
        "osgym": {"flavor": options.flavor, "apps": []},
    }
    return Conversion(task, name, app, (*missing, *left_out))


def _verifier(source: SourceFolder, app: str, options: ImportOptions) -> SourceFile:
    """Return the verifier program of an application.

    Raises:
        SourceError: It is not at hand.
    """
    names = (f"{app}/{app}.py", f"{app}.py", f"{app}/verifier.py")
    for folder, prefix in ((source, "verifiers/"), *_given(options)):
        for name in names:
            if folder.has(prefix + name):
                file = folder.file(prefix + name)
                source.note(f"verifiers/{name}", file.data)
                return file
    raise SourceError(
        f"the verifier program of {app} is not at hand; --verifiers names the folder that has it"
    )


def _given(options: ImportOptions) -> list[tuple[SourceFolder, str]]:
    return [] if options.verifiers is None else [(SourceFolder(options.verifiers), "")]


def _config(
    source: SourceFolder, place: str, original: Mapping[str, Any], app: str
) -> tuple[list[Step], list[str]]:
    """Return the set-up, and the names of what it lacks."""
    env = original.get("env")
    named = env.get("files", []) if isinstance(env, dict) else []
    if not isinstance(named, list) or not all(isinstance(entry, dict) for entry in named):
        raise SourceError("env.files must be a list of objects")
    at_hand: dict[str, SourceFile] = {}
    absent, scripts = [], []
    for entry in named:
        name = text_parameter(entry.get("filename"), "filename of env.files")
        path = plain_path(entry.get("sandbox_path"), "sandbox_path of env.files")
        if source.has(f"{place}/env/{name}"):
            at_hand[path] = source.file(f"{place}/env/{name}")
        else:
            absent.append(name)
        if name.startswith("setup_"):
            scripts.append(path)
    steps, missing = uploads(at_hand), [f"file {name[:100]}" for name in absent]
    maker = f"{place}/env/create_env.py"
    if absent and source.has(maker):
        steps += [
            *uploads({_CREATE: source.file(maker)}),
            shell(f"python3 {_CREATE}"),
            shell(removal([_CREATE])),
        ]
        missing = []
    steps += [
        shell(f"{'python3' if path.endswith('.py') else 'bash'} {shlex.quote(path)}") for path in scripts
    ]
    if scripts:
        steps.append(shell(removal(scripts)))
    if app not in _PROGRAMS:
        return steps, [*missing, f"the way to start {app}"]
    opened = [path for path in at_hand if path not in scripts][:1]
    return [*steps, launch([*_PROGRAMS[app], *opened])], missing


def _criteria(given: list[Any]) -> tuple[list[tuple[list[str], dict[str, Any]]], list[str]]:
    """Return the criteria as words of a command and rules, and the names of those left out.

    Raises:
        SourceError: One is malformed, too many are there, or none is left.
    """
    criteria: list[tuple[list[str], dict[str, Any]]] = []
    left_out = []
    for number, entry in enumerate(given, 1):
        if not isinstance(entry, dict):
            raise SourceError(f"criterion {number} is no object")
        if entry.get("judge") == "llm":
            left_out.append(f"criterion {number}, which a language model judges")
            continue
        try:
            words = shlex.split(text_parameter(entry.get("command"), f"command of criterion {number}"))
        except ValueError as error:
            raise SourceError(f"command of criterion {number}: {error}") from None
        if "eval" not in entry and not {"key", "expected"} <= entry.keys():
            raise SourceError(f"criterion {number} has neither eval nor key and expected")
        rules = {key: entry[key] for key in (("eval",) if "eval" in entry else ("key", "expected"))}
        if why := _refused(entry):
            left_out.append(f"criterion {number}, whose expression uses {why}")
            continue
        criteria.append((words, rules))
    if not criteria:
        raise SourceError(f"no criterion can be checked: {'; '.join(left_out) or 'there is none'}")
    if len(criteria) > MAX_METRICS:
        raise SourceError(f"it has {len(criteria)} criteria; a task has at most {MAX_METRICS}")
    return criteria, left_out


def _refused(entry: Mapping[str, Any]) -> str:
    try:
        if "eval" in entry:
            check_expression(str(entry["eval"]))
    except ExpressionRefused as error:
        return str(error)
    return ""
