"""Tasks of Gym-Anything: hooks that run in the desktop, and a verifier in Python that runs beside it.

The files of an environment that the policy may see are there from the beginning; the verifier never is, and
the hook after the task comes for the check only. The verifier runs in the host's confined evaluator, over
copies of the files that its source and the task's metadata name.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator, Mapping
from pathlib import PurePosixPath
from typing import Any

from osgym_cli.task.imports.foreign_verifier import ForeignVerifier, read_verifier
from osgym_cli.task.imports.results import Attempt, Conversion, ImportOptions, attempts
from osgym_cli.task.imports.source import SourceError, SourceFile, SourceFolder
from osgym_cli.task.imports.staging import (
    AS_ROOT,
    Step,
    check_size,
    make_folder,
    outside_addresses,
    placed,
    removal,
    shell,
    text_parameter,
    uploads,
)

WORKSPACE = "/workspace"
_USER_NAME = re.compile(r"[a-z_][a-z0-9_-]{0,30}")
_OTHER_DISPLAY = re.compile(r"DISPLAY[\"']?\s*[=:]\s*[\"']?:([1-9])")
_SECRET_NAMES = ("task.json", "README.md")
"""Files of a task's folder that are not for the policy, besides its verifier, checklists and last hook."""


def find(source: SourceFolder) -> list[str]:
    """Return the folders of tasks: ``tasks/NAME`` beside an ``env.json``."""
    folders = source.folders_with("task.json")
    return [one for one in folders if _is_task(source, PurePosixPath(one))]


def _is_task(source: SourceFolder, folder: PurePosixPath) -> bool:
    return folder.parent.name == "tasks" and source.has(f"{folder.parent.parent}/env.json")


def convert_all(source: SourceFolder, options: ImportOptions) -> Iterator[Attempt]:
    """Yield the conversion of each task."""
    return attempts(source, find(source), lambda place: _convert(source, place, options))


def _convert(source: SourceFolder, place: str, options: ImportOptions) -> Conversion:
    home = str(PurePosixPath(place).parent.parent)
    env, original = source.object(f"{home}/env.json"), source.object(f"{place}/task.json")
    name = text_parameter(original.get("id", PurePosixPath(place).name), "id")
    verifier = read_verifier(source, place, home, original)
    after = _hook(original, "post_task")
    visible, hidden, missing = _files(source, home, place, env, {*after, verifier.path})
    before = [*_hook(env, "post_start"), *_hook(original, "pre_task")]
    account = _account(env)
    config = [make_folder(WORKSPACE), *account, *uploads(visible), *_run(before)]
    if before:
        config.append(shell(removal(before)))
    postconfig: list[Step] = []
    if after:
        stale = _exported(verifier.paths, hidden, original)
        postconfig = [shell(removal([*after, *stale])), *uploads(hidden), *_run(after), shell(removal(after))]
    check_size([*config, *postconfig])
    scripts = [file.data.decode(errors="replace") for file in (*visible.values(), *hidden.values())]
    texts = [text for text in scripts if text.startswith("#!")]
    missing += [f"hook pre_start ({hook}), which installs programs" for hook in _hook(env, "pre_start")]
    missing += [
        f"hook {hook}, which is not at hand"
        for hook in (*before, *after)
        if hook not in {**visible, **hidden}
    ]
    missing += [f"display :{number}; desktops have :0" for number in _displays(texts)]
    task = _task(name, original, verifier, config, postconfig, options)
    found = (*missing, *verifier.missing, *outside_addresses(texts))
    return Conversion(task, name, PurePosixPath(home).name or "gym-anything", tuple(dict.fromkeys(found)))


def _task(
    name: str,
    original: Mapping[str, Any],
    verifier: ForeignVerifier,
    config: list[Step],
    postconfig: list[Step],
    options: ImportOptions,
) -> dict[str, Any]:
    init = original.get("init")
    sparse = isinstance(init, dict) and init.get("reward_type") == "sparse"
    rules = {"verifier": verifier.source, "function": verifier.function, "modules": verifier.modules}
    return {
        "id": name,
        "snapshot": "gym-anything",
        "instruction": text_parameter(original.get("description"), "description"),
        "config": config,
        "related_apps": [],
        "evaluator": {
            "postconfig": postconfig,
            "func": "check_by_verifier",
            "result": {"type": "vm_files", "paths": list(verifier.paths)},
            "expected": {"type": "rule", "rules": {**rules, "task": dict(original)}},
            "options": {"passed_only": sparse},
        },
        "osgym": {"flavor": options.flavor, "apps": []},
    }


def _hook(owner: Mapping[str, Any], name: str) -> list[str]:
    """Return the scripts of a hook, by their paths in the desktop.

    Raises:
        SourceError: The hook is no path, or a list of others.
    """
    hooks = owner.get("hooks")
    given = hooks.get(name) if isinstance(hooks, dict) else None
    paths = [given] if isinstance(given, str) else given or []
    if not isinstance(paths, list) or not all(isinstance(path, str) and path for path in paths):
        raise SourceError(f"the hook {name} must be a path, or a list of paths")
    if odd := next(
        (path for path in paths if not path.startswith("/") or ".." in PurePosixPath(path).parts), None
    ):
        raise SourceError(f"the hook {name} must be an absolute path without '..', not {odd[:100]!r}")
    return paths


def _exported(
    paths: Iterable[str], hooks: Mapping[str, SourceFile], original: Mapping[str, Any]
) -> list[str]:
    """Return the temporary files that the hooks after the task export.

    They are removed before, since a policy may have made them: root itself cannot overwrite a file of another
    user in ``/tmp``. What the task's description names is the policy's to make.
    """
    text = "".join(hook.data.decode(errors="replace") for hook in hooks.values())
    asked = str(original.get("description"))
    return [path for path in paths if path.startswith("/tmp/") and path in text and path not in asked]  # noqa: S108


def _run(scripts: list[str]) -> list[Step]:
    """Return the steps that run scripts as root, as the original does."""
    return [shell(AS_ROOT + f"-E bash {shlex.quote(script)}") for script in scripts]


def _files(
    source: SourceFolder, home: str, place: str, env: Mapping[str, Any], secret: set[str]
) -> tuple[dict[str, SourceFile], dict[str, SourceFile], list[str]]:
    """Return the files that the policy may see, those for the check, and the names of missing folders."""
    visible: dict[str, SourceFile] = {}
    missing: list[str] = []
    for folder, target in _mounts(env):
        if folder == "tasks":
            continue
        if not source.has(f"{home}/{folder}"):
            missing.append(f"folder {folder}")
        visible |= placed(source.below(f"{home}/{folder}"), target)
    tasks = dict(_mounts(env)).get("tasks", f"{WORKSPACE}/tasks")
    own = f"{tasks}/{PurePosixPath(place).name}"
    for path, file in placed(source.below(place), own).items():
        name = PurePosixPath(path).name
        if not (name in _SECRET_NAMES or "checklist" in name or "verifier" in name):
            visible[path] = file
    hidden = {path: visible.pop(path) for path in sorted(secret) if path in visible}
    return visible, hidden, missing


def _mounts(env: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the folders of the environment with their places in the desktop.

    Raises:
        SourceError: A mount is malformed.
    """
    mounts = env.get("mounts", [])
    if not isinstance(mounts, list):
        raise SourceError("mounts of env.json must be a list")
    found = []
    for mount in mounts:
        source, target = (
            (mount.get("source"), mount.get("target")) if isinstance(mount, dict) else (None, None)
        )
        if not isinstance(source, str) or not isinstance(target, str) or not target.startswith("/"):
            raise SourceError("each mount of env.json must have a source and an absolute target")
        if ".." in PurePosixPath(target).parts or PurePosixPath(source).name in {"", ".", ".."}:
            raise SourceError(f"the mount {source[:80]!r} to {target[:80]!r} is not plain")
        found.append((PurePosixPath(source).name, target.rstrip("/")))
    return found


def _account(env: Mapping[str, Any]) -> list[Step]:
    """Return the step that gives the desktop's user the name that scripts use for it, as a second name."""
    accounts = env.get("user_accounts")
    first = accounts[0] if isinstance(accounts, list) and accounts else {}
    name = first.get("name") if isinstance(first, dict) else None
    if not isinstance(name, str) or name in {"user", "root"} or not _USER_NAME.fullmatch(name):
        return []
    same = '-o -g "$(id -g)"'
    commands = (
        f"groupadd {same} {name}",
        f'useradd -o -u "$(id -u)" -g "$(id -g)" -M -d "$HOME" -s /bin/bash {name}',
        f'ln -sfn "$HOME" /home/{name}',
    )
    return [shell("; ".join(AS_ROOT + command for command in commands))]


def _displays(scripts: list[str]) -> list[str]:
    return sorted({number for text in scripts for number in _OTHER_DISPLAY.findall(text)})
