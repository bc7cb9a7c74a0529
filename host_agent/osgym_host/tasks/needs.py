"""Needs of a task that a host may lack: metrics, steps, an account, programs, the internet.

What is missing is told in the words of `task_unsupported`; programs are looked up in the image. What only the
run shows (a site that is down, a policy that goes elsewhere) cannot be told.
"""

from __future__ import annotations

import ipaddress
import itertools
import json
import re
import shlex
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path, PurePosixPath
from typing import Any

from osgym_host.tasks.downloads import cache_name, cached_at
from osgym_host.tasks.errors import InvalidTask
from osgym_host.tasks.evaluate import evidence_of
from osgym_host.tasks.parse import ACCOUNTS, unsupported_features, validate_task, with_account
from osgym_host.tasks.schema import Task
from osgym_host.tasks.steps import CommandParameters
from osgym_protocol.codes import Evidence

HasProgram = Callable[[str], bool]

_ACCOUNTS = frozenset(with_account(feature) for feature in ACCOUNTS)
_PAGES = frozenset(
    {
        "active_tab_html_parse", "active_tab_info", "active_tab_url_parse", "active_url_from_accessTree",
        "gotoRecreationPage_and_get_html_content", "info_from_website", "open_tabs_info", "page_info",
        "pdf_from_url", "url_dashPart",
    }
)  # fmt: skip
"""Getters of pages: sites of the internet, unless the task says otherwise."""
_APPS = {
    "chrome": "google-chrome", "gimp": "gimp", "thunderbird": "thunderbird", "vlc": "vlc",
    "vscode": "code", "vs_code": "code", "libreoffice": "libreoffice", "libreoffice_calc": "libreoffice",
    "libreoffice_writer": "libreoffice", "libreoffice_impress": "libreoffice", "picard": "picard",
}  # fmt: skip
"""Programs that start OSWorld's `related_apps`."""
_NOT_IN_DEBIAN = {"code": "not in Debian; add its package with `osgym image build --add`"}
_BUILT_IN = frozenset(
    {".", "[", "alias", "cd", "echo", "eval", "exec", "exit", "export", "for", "if", "kill", "let", "printf",
     "pwd", "read", "set", "sleep", "source", "test", "then", "trap", "type", "ulimit", "umask", "unset",
     "wait", "while", "{", "(", "!", "do", "true", "false"}
)  # fmt: skip
_URL = re.compile(r"\bhttps?://(\[[0-9a-fA-F:]+\]|[^\s/\"'<>:\\?#]+)")
_OWN_PAGE = re.compile(r"\b(?:chrome|file|about):")
_INSTALLS = re.compile(r"\b(?:apt(?:-get)?|pip3?|npm|snap)\s+install\b(?!\s+[/~.])|\bgit\s+clone\b|\bwget\b")
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=")
_PATH = ("usr/local/sbin", "usr/local/bin", "usr/sbin", "usr/bin", "usr/games", "home/user/.local/bin")
_MAX_LINKS = 16
_MAX_SHOWN = 60


class Verdict(StrEnum):
    """Verdicts on a task, in the order of a summary."""

    RUNS = "runs here"
    FETCHES = "runs here, fetches files"
    INTERNET = "needs internet"
    ACCOUNT = "needs an account"
    PROGRAM = "needs a program"
    MISSING = "missing"
    INVALID = "not a task"


@dataclass(frozen=True, slots=True)
class Needs:
    """Unmet needs of a task; all are empty if the task runs.

    Attributes:
        invalid: Why it is no task.
        accounts, missing: In the words of `task_unsupported`.
        programs: Names that are not in the image.
        internet: What is done there while the task is set up, run and checked.
        to_fetch: Files that the host fetches once and keeps, and does not have yet: each by its address, and
            its name in the host's cache, where it may be put instead.
        evidence: Source of its check's evidence (see `evidence_of`); None if the file is no task.
    """

    invalid: str = ""
    accounts: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    programs: tuple[str, ...] = ()
    internet: tuple[str, ...] = ()
    to_fetch: tuple[tuple[str, str], ...] = ()
    evidence: Evidence | None = None

    @property
    def fetches(self) -> int:
        return len(self.to_fetch)

    @property
    def verdict(self) -> Verdict:
        """Verdict on the task: needs that nobody here can meet come first."""
        if self.invalid:
            return Verdict.INVALID
        if self.accounts:
            return Verdict.ACCOUNT
        if self.missing:
            return Verdict.MISSING
        if self.programs:
            return Verdict.PROGRAM
        if self.internet:
            return Verdict.INTERNET
        return Verdict.FETCHES if self.fetches else Verdict.RUNS

    @property
    def words(self) -> tuple[str, ...]:
        programs = tuple(f"program {name}{_how(name)}" for name in self.programs)
        files = (
            (f"{self.fetches} file{'s' if self.fetches > 1 else ''} to fetch once",) if self.fetches else ()
        )
        invalid = (self.invalid,) if self.invalid else ()
        return (*invalid, *self.accounts, *self.missing, *programs, *self.internet, *files)


def _how(program: str) -> str:
    """Return a hint how a program that Debian lacks gets into an image."""
    hint = _NOT_IN_DEBIAN.get(PurePosixPath(program).name)
    return f" ({hint})" if hint else ""


def needs_of(obj: object, has_program: HasProgram | None, cache: Path | None = None) -> Needs:
    """Find out what a task needs.

    Args:
        obj: The decoded JSON of a task file.
        has_program: Whether the image has a program; None looks none up.
        cache: The host's folder of fetched files.
    """
    try:
        task = validate_task(obj)
        features = unsupported_features(task)
    except InvalidTask as error:
        return Needs(invalid=error.message)
    assert isinstance(obj, dict)
    accounts = tuple(name for name in features if name in _ACCOUNTS)
    programs = () if has_program is None else tuple(n for n in _programs(task) if not has_program(n))
    return Needs(
        accounts=accounts,
        missing=tuple(name for name in features if name not in _ACCOUNTS),
        programs=programs,
        internet=tuple(dict.fromkeys(_online(task, obj))),
        to_fetch=_to_fetch(task, cache),
        evidence=evidence_of(task),
    )


def _commands(task: Task) -> Iterator[str | list[str]]:
    for step in (*task.config, *task.evaluator.postconfig):
        if isinstance(step.parameters, CommandParameters):
            yield step.parameters.command


def _programs(task: Task) -> list[str]:
    """Return the names of the programs that the task's commands and applications start."""
    found: dict[str, None] = {}
    for command in _commands(task):
        for name in _started(command):
            found[name] = None
    for app in task.related_apps:
        program = _APPS.get(app.lower().replace(" ", "_"))
        if program is not None and not any(PurePosixPath(name).name == program for name in found):
            found[program] = None
    return list(found)


def _started(command: str | list[str]) -> Iterator[str]:
    """Yield the programs that a command begins with, without the task's own files."""
    if isinstance(command, list) and len(command) > 1:
        words = command
    else:
        text = command if isinstance(command, str) else command[0]
        try:
            words = shlex.split(text.strip(), comments=False)
        except ValueError:
            words = text.split()
    if "sudo" in words:  # its own options, none of which here has a value, and what it starts
        at = words.index("sudo")
        words = words[:at] + list(itertools.dropwhile(lambda word: word.startswith("-"), words[at + 1 :]))
    if words[:1] == ["export"]:  # what follows on the next line is what is started
        words = words[1:]
    while words and _ASSIGNMENT.match(words[0]):
        words = words[1:]
    name = words[0].rstrip(";") if words else ""
    own = "/" in name and not name.startswith(("/usr/", "/bin/", "/opt/", "/snap/"))
    if name and not own and name not in _BUILT_IN and re.fullmatch(r"[\w./+-]+", name):
        yield name


def _online(task: Task, obj: Mapping[str, Any]) -> Iterator[str]:
    """Yield the uses of the internet while the task is set up, run and checked."""
    for step in (*task.config, *task.evaluator.postconfig):
        if step.type == "chrome_open_tabs":
            urls = _outside(getattr(step.parameters, "urls_to_open", []))
            yield from (f"opens {url[:_MAX_SHOWN]}" for url in urls)
    for command in _commands(task):
        yield from (f"a command names {url[:_MAX_SHOWN]}" for url in _outside(command))
        text = command if isinstance(command, str) else " ".join(command)
        if match := _INSTALLS.search(text):
            yield f"a command runs {match[0]}"
    local = any(_is_local(host) for host in _URL.findall(json.dumps(obj)))
    for check in task.evaluator.checks:
        asked = {g.type for g in (check.result, check.expected) if g is not None} & _PAGES
        for name in sorted(asked):
            said = [g.model_dump() for g in (check.result, check.expected) if g is not None]
            if not local and not _OWN_PAGE.search(json.dumps(said)):
                yield f"{name} reads a page"


def _outside(value: object) -> list[str]:
    """Return the addresses of other machines in a text, or in texts."""
    text = value if isinstance(value, str) else json.dumps(value)
    return [match[0] for match in _URL.finditer(text) if not _is_local(match[1])]


def _is_local(host: str) -> bool:
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return not ipaddress.ip_address(host.strip("[]")).is_global
    except ValueError:
        return False


def _to_fetch(task: Task, cache: Path | None) -> tuple[tuple[str, str], ...]:
    wanted: set[tuple[str, str]] = set()
    for step in (*task.config, *task.evaluator.postconfig):
        if step.type == "download" and (files := getattr(step.parameters, "files", None)):
            wanted |= {(file.url, file.path) for file in files}
    for check in task.evaluator.checks:
        for getter in (check.result, check.expected):
            if getter is not None and getter.type == "cloud_file":
                wanted |= set(_cloud_files(getter.fields))
    missing = ((url, path) for url, path in wanted if not _is_cached(cache, task.safe_id, url, path))
    return tuple(sorted((url, cache_name(url, path)) for url, path in missing))


def _cloud_files(fields: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    urls, names = fields.get("path"), fields.get("dest", "file")
    urls = urls if isinstance(urls, list) else [urls]
    names = names if isinstance(names, list) else [names]
    for index, url in enumerate(urls):
        if isinstance(url, str):
            yield url, str(names[index]) if index < len(names) else url


def _is_cached(cache: Path | None, task_id: str, url: str, path: str) -> bool:
    if not url.startswith(("http://", "https://")):
        return True
    return cache is not None and any(place.is_file() for place in cached_at(cache, url, path, task_id))


def programs_of(rootfs: Path) -> HasProgram:
    """Return a function that looks a program up in an image's root file system, by name or path."""
    known: dict[str, bool] = {}

    def has(name: str) -> bool:
        if name not in known:
            places = [name.lstrip("/")] if "/" in name else [f"{folder}/{name}" for folder in _PATH]
            known[name] = any(_leads_to_file(rootfs, place) for place in places)
        return known[name]

    return has


def _leads_to_file(rootfs: Path, place: str) -> bool:
    """Return whether a path inside leads to a file; links never lead out of the root file system."""
    parts, done, links = list(PurePosixPath(place).parts), PurePosixPath(), 0
    while parts:
        part = parts.pop(0)
        if part in {"/", "."}:
            continue
        if part == "..":
            done = done.parent
            continue
        here = rootfs / done / part
        if here.is_symlink():
            links += 1
            if links > _MAX_LINKS:
                return False
            target = PurePosixPath(here.readlink())
            parts = [*target.parts, *parts]
            done = PurePosixPath() if target.is_absolute() else done
            continue
        done /= part
    return (rootfs / done).is_file()
