"""Setup steps that bring an original's files into a desktop and run its scripts there. Pure."""

from __future__ import annotations

import base64
import re
import shlex
from collections.abc import Iterable, Mapping
from pathlib import PurePosixPath
from typing import Any

from osgym_cli.task.imports.source import SourceError, SourceFile
from osgym_host.tasks.steps import MAX_FILES, MAX_INLINE_DATA
from osgym_protocol.task_files import MAX_INLINED_BYTES

Step = dict[str, Any]

AS_ROOT = "echo '{CLIENT_PASSWORD}' | sudo -S -p '' "
"""Beginning of a shell command that root runs; the host fills in the password."""
_URL = re.compile(r"https?://(?!127\.|localhost|\[::1\]|0\.0\.0\.0)[^\s\"'<>`\\)]+")
_NAMESPACES = ("http://www.w3.org/", "http://schemas.")
_MAX_SHOWN = 80


def text_parameter(value: object, what: str) -> str:
    """Return a text of an original that must be there.

    Raises:
        SourceError: It is missing, empty, or no text.
    """
    if not isinstance(value, str) or not value.strip():
        raise SourceError(f"{what} is missing or no text")
    return value.strip()


def plain_path(value: object, what: str) -> str:
    """Return an absolute path in a desktop.

    Raises:
        SourceError: It is none.
    """
    text = text_parameter(value, what)
    if not text.startswith("/") or ".." in PurePosixPath(text).parts or not text.isprintable():
        raise SourceError(f"{what} must be an absolute path without '..', not {text[:100]!r}")
    return text


def placed(files: Mapping[str, SourceFile], folder: str) -> dict[str, SourceFile]:
    """Return files by their paths in the desktop."""
    return {f"{folder}/{name}": file for name, file in files.items()}


def uploads(files: Mapping[str, SourceFile]) -> list[Step]:
    """Return the steps that write files, by path, and give them their permission to be executed."""
    entries = [_entry(path, file.data) for path, file in files.items()]
    steps = [
        _step("upload_file", files=entries[at : at + MAX_FILES]) for at in range(0, len(entries), MAX_FILES)
    ]
    if programs := [path for path, file in files.items() if file.executable]:
        steps.append(_step("execute", command=["chmod", "+x", *programs]))
    return steps


def _entry(path: str, data: bytes) -> dict[str, str]:
    try:
        text = data.decode()
    except UnicodeDecodeError:
        text = ""
    if text and "\0" not in text:
        return {"path": path, "text": text}
    encoded = base64.b64encode(data).decode("ascii")
    if len(encoded) > MAX_INLINE_DATA:
        raise SourceError(f"{path}: too large for a task")
    return {"path": path, "data_base64": encoded}


def shell(command: str) -> Step:
    """Return the step that runs a shell command."""
    return _step("execute", command=["bash", "-c", command])


def launch(command: list[str]) -> Step:
    """Return the step that starts a program and leaves it running."""
    return _step("launch", command=command)


def make_folder(path: str) -> Step:
    """Return the step that makes a folder of the desktop's user, anywhere."""
    return shell(AS_ROOT + f'install -d -o "$(id -un)" -g "$(id -gn)" {shlex.quote(path)}')


def removal(paths: Iterable[str]) -> str:
    """Return the shell command that removes files and folders."""
    return "rm -rf -- " + " ".join(shlex.quote(path) for path in paths)


def outside_addresses(texts: Iterable[str]) -> list[str]:
    """Return sentences about the internet addresses that scripts name."""
    found = (url for text in texts for url in _URL.findall(text) if not url.startswith(_NAMESPACES))
    return [f"a script names {url[:_MAX_SHOWN]}" for url in dict.fromkeys(found)]


def check_size(steps: Iterable[Step]) -> None:
    """Check that the files of a task fit into the request that sends it.

    Raises:
        SourceError: They do not.
    """
    sizes = (
        len(file.get("text", "").encode()) + len(file.get("data_base64", "")) * 3 // 4
        for step in steps
        if step["type"] == "upload_file"
        for file in step["parameters"]["files"]
    )
    if (size := sum(sizes)) > MAX_INLINED_BYTES:
        raise SourceError(f"its files have {size} bytes; a task carries at most {MAX_INLINED_BYTES}")


def _step(kind: str, **parameters: Any) -> Step:
    return {"type": kind, "parameters": parameters}
