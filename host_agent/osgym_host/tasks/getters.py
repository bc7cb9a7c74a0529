"""Getters: what fetches a metric's arguments from a guest, the web cache or the task itself.

They move bytes and text and parse nothing; what has to be parsed is handed to the confined process
as a file with the name of a reader (``transform``).
"""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from osgym_host.guest import GuestClient, GuestRefused
from osgym_host.guest_http import GuestAnswerTooLarge
from osgym_host.tasks.context import TaskContext, remaining_s
from osgym_host.tasks.downloads import safe_name
from osgym_host.tasks.errors import EvaluatorError, UnsupportedTask
from osgym_host.tasks.schema import Command, Getter, LenientBool
from osgym_host.tasks.setup import substitute
from osgym_host.tasks.values import NamedFile, Value

GUEST_TIMEOUT_S = 60.0
COMMAND_TIMEOUT_S = 130.0

Path_ = Annotated[str, Field(min_length=1, max_length=4000)]
Name = Annotated[str, Field(min_length=1, max_length=400)]


class _Fields(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)


class NoFields(_Fields):
    """A getter without fields of its own."""


class FileFields(_Fields):
    """Files by path (in the guest) or URL; ``gives`` picks those that the metric gets."""

    path: Path_ | Annotated[list[Path_], Field(min_length=1, max_length=32)]
    dest: Name | list[Name] = "file"
    multi: LenientBool = False
    gives: list[Annotated[int, Field(ge=0, lt=32)]] = [0]


class CommandFields(_Fields):
    command: Command
    shell: LenientBool = False


class PathFields(_Fields):
    path: Path_


class RuleFields(_Fields):
    rules: Any


class ContentFields(_Fields):
    path: Path_
    file_type: str
    file_content: str


class ConfigFields(_Fields):
    dest: Name = "config"


class GimpConfigFields(_Fields):
    file_name: Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]+$")]


class WindowSizeFields(_Fields):
    app_class_name: Name


class Fetcher:
    """Fetches arguments at the end of one episode."""

    def __init__(self, guest: GuestClient, ctx: TaskContext, task_id: str, deadline: float) -> None:
        self.guest = guest
        self.ctx = ctx
        self.task_id = task_id
        self.deadline = deadline

    async def fetch(self, getter: Getter) -> Value:
        """What the getter names; `Value.missing` when it is not there.

        Raises:
            UnsupportedTask, EvaluatorError, DownloadFailed, RefusedByPolicy, DeadlineExceeded: and
                what the guest client raises when the replica is gone.
        """
        try:
            model, function = GETTERS[getter.type]
        except KeyError as error:
            raise UnsupportedTask([f"getter {getter.type}"]) from error
        return await function(self, model.model_validate(getter.fields))

    def left(self, what: str, most: float = GUEST_TIMEOUT_S) -> float:
        return min(most, remaining_s(self.deadline, what))

    async def guest_file(self, path: str, name: str) -> NamedFile | Value:
        """A file of the guest, kept under a name of ours; a missing `Value` when it cannot be had."""
        limit = self.ctx.policy.max_file_bytes
        try:
            data = await self.guest.file(path, max_bytes=limit, timeout_s=self.left(f"reading {path}"))
        except GuestAnswerTooLarge:
            return Value(missing=True, note=f"{path} is larger than {limit} bytes")
        except GuestRefused as error:
            if error.status in {400, 404}:
                return Value(missing=True, note=f"{path} is not there")
            raise EvaluatorError(f"{path} could not be read: {error}", {"path": path}) from error
        return await self.keep(data, name)

    async def keep(self, data: bytes, name: str) -> NamedFile:
        """Put bytes into the episode's folder."""
        return NamedFile(await asyncio.to_thread(_write, self.ctx.episode_dir, data), safe_name(name))

    async def vm_file(self, fields: FileFields) -> Value:
        return await self._files(fields, self.guest_file)

    async def cloud_file(self, fields: FileFields) -> Value:
        async def get(url: str, dest: str) -> NamedFile:
            path = await self.ctx.downloads.get(url, dest, self.task_id, self.deadline)
            return NamedFile(path, safe_name(dest))

        return await self._files(fields, get)

    async def _files(
        self, fields: FileFields, get: Callable[[str, str], Awaitable[NamedFile | Value]]
    ) -> Value:
        paths = fields.path if isinstance(fields.path, list) else [fields.path]
        names = fields.dest if isinstance(fields.dest, list) else [fields.dest]
        if len(names) < len(paths):
            names = [*names, *(safe_name(p) for p in paths[len(names) :])]
        many = fields.multi and len(paths) > 1
        wanted = [i for i in fields.gives if i < len(paths)] if many else [0]
        files: list[NamedFile] = []
        for i in wanted:
            got = await get(paths[i], names[i])
            if isinstance(got, Value):
                return got
            files.append(got)
        return Value(files=tuple(files), many=len(files) > 1)

    async def cache_file(self, fields: PathFields) -> Value:
        data = self.ctx.outputs.get(fields.path)
        if data is None:
            return Value(missing=True, note=f"no setup step kept an output named {fields.path}")
        return Value(files=(await self.keep(data, fields.path),))

    async def command_output(self, fields: CommandFields) -> Value:
        return Value(data=(await self._command(fields))[0])

    async def command_error(self, fields: CommandFields) -> Value:
        return Value(data=(await self._command(fields))[1])

    async def _command(self, fields: CommandFields) -> tuple[str, str]:
        try:
            result = await self.guest.execute(
                substitute(fields.command, self.ctx),
                shell=fields.shell,
                timeout_s=self.left("a command", COMMAND_TIMEOUT_S),
            )
        except GuestRefused as error:
            raise EvaluatorError(f"a command of the check did not run: {error}") from error
        return result.output, result.error

    async def rule(self, fields: RuleFields) -> Value:
        return Value(data=fields.rules)

    async def terminal(self, fields: NoFields) -> Value:
        text = await self.guest.terminal(timeout_s=self.left("the terminal's text"))
        return Value(missing=True, note="no terminal has the focus") if text is None else Value(data=text)

    async def accessibility(self, fields: NoFields) -> Value:
        tree = await self.guest.accessibility(timeout_s=self.left("the accessibility tree"))
        return Value(files=(await self.keep(tree.encode(), "tree.xml"),))

    async def directory(self, fields: PathFields) -> Value:
        try:
            return Value(data=await self.guest.list_directory(fields.path, timeout_s=self.left("a folder")))
        except GuestRefused as error:
            return Value(missing=True, note=f"{fields.path} cannot be listed: {error}")

    async def screen_size(self, fields: NoFields) -> Value:
        width, height = await self.guest.screen_size(timeout_s=self.left("the screen's size"))
        return Value(data={"width": width, "height": height})

    async def window_size(self, fields: WindowSizeFields) -> Value:
        try:
            width, height = await self.guest.window_size(
                fields.app_class_name, timeout_s=self.left("a window's size")
            )
        except GuestRefused:
            return Value(missing=True, note=f"there is no window of {fields.app_class_name}")
        return Value(data={"width": width, "height": height})

    async def windows(self, fields: NoFields) -> Value:
        output, _ = await self._command(CommandFields(command=["wmctrl", "-l"]))
        lines = (line.split(None, 3) for line in output.splitlines())
        return Value(data=[parts[3] for parts in lines if len(parts) == 4])

    async def content(self, fields: ContentFields) -> Value:
        got = await self.guest_file(fields.path, fields.path)
        if isinstance(got, Value):
            return got
        return Value(files=(got,), transform=f"{fields.file_type}_{fields.file_content}")

    async def vlc_config(self, fields: ConfigFields) -> Value:
        return await self._config("/home/user/.config/vlc/vlcrc")

    async def gimp_config(self, fields: GimpConfigFields) -> Value:
        return await self._config(f"/home/user/.config/GIMP/2.10/{fields.file_name}")

    async def _config(self, path: str) -> Value:
        got = await self.guest_file(path, path)
        return got if isinstance(got, Value) else Value(files=(got,))

    async def default_video_player(self, fields: NoFields) -> Value:
        return await self.command_output(CommandFields(command=["xdg-mime", "query", "default", "video/mp4"]))


def _write(folder: Path, data: bytes) -> Path:
    fd, name = tempfile.mkstemp(prefix="value-", dir=folder)
    with os.fdopen(fd, "wb") as file:
        file.write(data)
    return Path(name)


_Function = Callable[[Fetcher, Any], Awaitable[Value]]
GETTERS: Mapping[str, tuple[type[_Fields], _Function]] = {
    "vm_file": (FileFields, Fetcher.vm_file),
    "cloud_file": (FileFields, Fetcher.cloud_file),
    "cache_file": (PathFields, Fetcher.cache_file),
    "vm_command_line": (CommandFields, Fetcher.command_output),
    "vm_command_error": (CommandFields, Fetcher.command_error),
    "vm_terminal_output": (NoFields, Fetcher.terminal),
    "rule": (RuleFields, Fetcher.rule),
    "content_from_vm_file": (ContentFields, Fetcher.content),
    "accessibility_tree": (NoFields, Fetcher.accessibility),
    "list_directory": (PathFields, Fetcher.directory),
    "vm_screen_size": (NoFields, Fetcher.screen_size),
    "vm_window_size": (WindowSizeFields, Fetcher.window_size),
    "vm_window_titles": (NoFields, Fetcher.windows),
    "vlc_config": (ConfigFields, Fetcher.vlc_config),
    "gimp_config_file": (GimpConfigFields, Fetcher.gimp_config),
    "default_video_player": (NoFields, Fetcher.default_video_player),
}
"""OSWorld's getters, and one of our own: ``vm_window_titles``, a list of the open windows' titles."""

CONTENT_KINDS = frozenset({("xlsx", "last_row")})
"""What ``content_from_vm_file`` can read."""


def getter_problems(getter: Getter) -> tuple[list[str], list[str]]:
    """What is wrong with a getter: names of unsupported features, and sentences about its fields."""
    if getter.type not in GETTERS:
        return [f"getter {getter.type}"], []
    model, _ = GETTERS[getter.type]
    try:
        fields = model.model_validate(getter.fields)
    except ValidationError as error:
        return [], [
            f"{'.'.join(str(p) for p in e['loc'])}: {e['msg'].removeprefix('Value error, ')}"
            for e in error.errors(include_url=False)
        ]
    if isinstance(fields, ContentFields) and (fields.file_type, fields.file_content) not in CONTENT_KINDS:
        return [f"getter content_from_vm_file of {fields.file_type} {fields.file_content}"], []
    return [], []
