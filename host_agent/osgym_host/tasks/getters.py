"""Getters that the host brings: they fetch a metric's arguments from a guest, the web or the task itself.

They move bytes and text and parse nothing. A file that has to be parsed is handed to the confined process
with the name of a reader. The names are OSWorld's, but for ``vm_window_titles``, which is OSGym's own.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from osgym_host.guest_client import GuestAnswerTooLarge, GuestRefused
from osgym_host.tasks.context import COMMAND_TIMEOUT_S, TaskRun
from osgym_host.tasks.downloads import safe_name
from osgym_host.tasks.evaluator.registry import READERS
from osgym_host.tasks.registry import (
    Command,
    FileName,
    FilePath,
    FileUrl,
    LenientBool,
    NoParameters,
    Parameters,
    getter,
)
from osgym_host.tasks.replica_side import is_ours
from osgym_host.tasks.values import DiskFile, NamedFile, Value

GUEST_TIMEOUT_S = 60.0
MAX_FILES = 32
MAX_TITLES_CHARS = 64 * 1024


def _listed(value: object) -> object:
    return [value] if isinstance(value, str) else value


class SeveralFiles(Parameters):
    """Names of several files, and indices (``gives``) of those that a metric gets; others lie beside."""

    dest: FileName | list[FileName] = "file"
    multi: LenientBool = False
    gives: tuple[Annotated[int, Field(ge=0, lt=MAX_FILES)], ...] = (0,)


class FilesParameters(SeveralFiles):
    path: Annotated[list[FilePath], Field(min_length=1, max_length=MAX_FILES), BeforeValidator(_listed)]


class CloudFilesParameters(SeveralFiles):
    path: Annotated[list[FileUrl], Field(min_length=1, max_length=MAX_FILES), BeforeValidator(_listed)]


@getter(FilesParameters, reads_files=True)
async def vm_file(run: TaskRun, parameters: FilesParameters) -> Value:
    """Files of the guest."""

    async def get(path: str, dest: str) -> NamedFile | DiskFile | Value:
        return await guest_file(run, path, dest)

    return await _files(parameters.path, parameters, get)


@getter(CloudFilesParameters, from_replica=False)
async def cloud_file(run: TaskRun, parameters: CloudFilesParameters) -> Value:
    """Files by URL, from the host's cache where possible."""

    async def get(url: str, dest: str) -> NamedFile:
        return NamedFile(await run.ctx.downloads.get(url, dest, run.task_id, run.deadline), safe_name(dest))

    return await _files(parameters.path, parameters, get)


async def guest_file(run: TaskRun, path: str, name: str) -> NamedFile | DiskFile | Value:
    """Return a file of the guest, on its disk or kept under a name of ours; a missing `Value` for none."""
    limit = run.ctx.policy.max_file_bytes
    timeout_s = run.left(f"reading {path}", GUEST_TIMEOUT_S)
    if run.disk is not None and (found := await run.disk.file(path, safe_name(name), timeout_s)) is not None:
        return found
    try:
        data = await run.guest.file(path, max_bytes=limit, timeout_s=timeout_s)
    except GuestAnswerTooLarge:
        return Value(missing=True, note=f"{path} is larger than {limit} bytes")
    except GuestRefused as error:
        if error.status == 404 and not is_ours(error):
            return Value(missing=True, note=f"{path} does not exist")
        raise
    return await run.keep(data, name)


async def guest_file_value(run: TaskRun, path: str, *, reader: str = "") -> Value:
    """Return a file of the guest as a getter's value, to be read by ``reader`` if it is given."""
    got = await guest_file(run, path, path)
    return got if isinstance(got, Value) else Value(files=(got,), reader=reader)


async def _files(
    paths: list[str],
    parameters: SeveralFiles,
    get: Callable[[str, str], Awaitable[NamedFile | DiskFile | Value]],
) -> Value:
    names = parameters.dest if isinstance(parameters.dest, list) else [parameters.dest]
    if len(names) < len(paths):
        names = [*names, *(safe_name(p) for p in paths[len(names) :])]
    many = parameters.multi and len(paths) > 1
    wanted = [i for i in parameters.gives if i < len(paths)] if many else [0]
    files: list[NamedFile | DiskFile] = []
    for i in wanted:
        got = await get(paths[i], names[i])
        if isinstance(got, Value):
            return got
        files.append(got)
    others = [await get(paths[i], names[i]) for i in range(len(paths)) if many and i not in wanted]
    beside = tuple(file for file in others if not isinstance(file, Value))
    return Value(files=tuple(files), beside=beside, many=len(files) > 1)


class PathsParameters(Parameters):
    paths: Annotated[list[FilePath], Field(max_length=MAX_FILES)]


@getter(PathsParameters)
async def vm_files(run: TaskRun, parameters: PathsParameters) -> Value:
    """Files of the guest, each under its path; those that do not exist or cannot be read are left out."""
    asking, files = replace(run, disk=None), []
    for path in parameters.paths:
        try:
            got = await guest_file(asking, path, path)
        except GuestRefused as error:
            if is_ours(error):
                raise
            continue
        if isinstance(got, NamedFile):
            files.append(NamedFile(got.path, path))
    return Value(files=tuple(files), many=True) if files else Value(data={})


class PathParameters(Parameters):
    path: FilePath


@getter(PathParameters, from_replica=False)
async def cache_file(run: TaskRun, parameters: PathParameters) -> Value:
    """Output of a command that a setup step kept."""
    data = run.ctx.outputs.get(parameters.path)
    if data is None:
        return Value(missing=True, note=f"no setup step saved an output named {parameters.path}")
    return Value(files=(await run.keep(data, parameters.path),))


class CommandParameters(Parameters):
    command: Command
    shell: LenientBool = False


@getter(CommandParameters)
async def vm_command_line(run: TaskRun, parameters: CommandParameters) -> Value:
    """A command's standard output."""
    return Value(data=(await command_output(run, parameters.command, parameters.shell))[0])


@getter(CommandParameters)
async def vm_command_error(run: TaskRun, parameters: CommandParameters) -> Value:
    """A command's standard error."""
    return Value(data=(await command_output(run, parameters.command, parameters.shell))[1])


async def command_output(run: TaskRun, command: str | list[str], shell: bool = False) -> tuple[str, str]:
    """Run a command in the guest; return its standard output and its standard error."""
    timeout_s = run.left("a command", COMMAND_TIMEOUT_S)
    result = await run.guest.execute(
        run.substitute(command), shell=shell, timeout_s=timeout_s, isolated=run.of_check
    )
    return result.output, result.error


class RuleParameters(Parameters):
    rules: Any


@getter(RuleParameters, from_replica=False)
async def rule(run: TaskRun, parameters: RuleParameters) -> Value:
    """Value that stands in the task file."""
    return Value(data=parameters.rules)


@getter(NoParameters)
async def vm_terminal_output(run: TaskRun, parameters: NoParameters) -> Value:
    """The text of the focused terminal."""
    text = await run.guest.terminal(timeout_s=run.left("the terminal's text", GUEST_TIMEOUT_S))
    return Value(missing=True, note="no terminal has the focus") if text is None else Value(data=text)


@getter(NoParameters)
async def accessibility_tree(run: TaskRun, parameters: NoParameters) -> Value:
    """The accessibility tree as an XML file."""
    tree = await run.guest.accessibility(timeout_s=run.left("the accessibility tree", GUEST_TIMEOUT_S))
    return Value(files=(await run.keep(tree.encode(), "tree.xml"),))


@getter(PathParameters, reads_files=True)
async def list_directory(run: TaskRun, parameters: PathParameters) -> Value:
    """The names below a folder of the guest."""
    timeout_s = run.left("a folder", GUEST_TIMEOUT_S)
    listing = await run.guest.list_directory(parameters.path, timeout_s=timeout_s)
    return Value(files=(await run.keep(listing, "listing.json"),), reader="directory_tree")


@getter(NoParameters)
async def vm_screen_size(run: TaskRun, parameters: NoParameters) -> Value:
    """Width and height of the screen in pixels."""
    width, height = await run.guest.screen_size(timeout_s=run.left("the screen's size", GUEST_TIMEOUT_S))
    return Value(data={"width": width, "height": height})


class WindowSizeParameters(Parameters):
    app_class_name: FileName


@getter(WindowSizeParameters)
async def vm_window_size(run: TaskRun, parameters: WindowSizeParameters) -> Value:
    """Width and height of an application's window in pixels."""
    name = parameters.app_class_name
    timeout_s = run.left("a window's size", GUEST_TIMEOUT_S)
    width, height = await run.guest.window_size(name, timeout_s=timeout_s)
    return Value(data={"width": width, "height": height})


@getter(NoParameters)
async def vm_window_titles(run: TaskRun, parameters: NoParameters) -> Value:
    """The titles of the open windows."""
    output, _ = await command_output(run, ["wmctrl", "-l"])
    lines = (line.split(None, 3) for line in output[:MAX_TITLES_CHARS].splitlines())
    return Value(data=[parts[3] for parts in lines if len(parts) == 4])


class ContentParameters(Parameters):
    path: FilePath
    file_type: str
    file_content: str

    @property
    def reader(self) -> str:
        """Name of the reader of that content."""
        return f"{self.file_type}_{self.file_content}"


def _unreadable_content(parameters: ContentParameters) -> list[str]:
    if parameters.reader in READERS:
        return []
    return [f"getter content_from_vm_file of {parameters.file_type} {parameters.file_content}"]


@getter(ContentParameters, unsupported=_unreadable_content, reads_files=True)
async def content_from_vm_file(run: TaskRun, parameters: ContentParameters) -> Value:
    """A part of a file of the guest, read in the confined process."""
    return await guest_file_value(run, parameters.path, reader=parameters.reader)
