"""Records of folders: a setup step keeps one before the policy acts, a getter makes one at the check.

The metric ``check_folder_kept`` compares the two. The first record lies in the memory of the host, where no
program of the desktop can change it.
"""

from __future__ import annotations

import json

from osgym_host.tasks.context import COMMAND_TIMEOUT_S, TaskRun
from osgym_host.tasks.registry import FilePath, Parameters, StepProblem, getter, setup_step
from osgym_host.tasks.steps import OutputName
from osgym_host.tasks.values import Value

HOME = "/home/user"
MAX_HASHED_BYTES = 64 << 20
"""Number of bytes of a file that its digest covers."""
_PROGRAM = f"""
import hashlib, json, os, stat, sys

def digest(path):
    left, sha = {MAX_HASHED_BYTES}, hashlib.sha256()
    with open(path, "rb") as file:
        while left and (data := file.read(min(left, 1 << 20))):
            sha.update(data)
            left -= len(data)
    return sha.hexdigest()

def entry(path):
    about = os.lstat(path)
    mode, owner = oct(stat.S_IMODE(about.st_mode)), about.st_uid
    if stat.S_ISDIR(about.st_mode):
        return ["folder", mode, owner]
    if stat.S_ISLNK(about.st_mode):
        return ["link", mode, owner, os.readlink(path)]
    if not stat.S_ISREG(about.st_mode):
        return ["special", mode, owner]
    try:
        found = digest(path)
    except OSError:
        found = "unreadable"
    return ["file", mode, owner, about.st_size, found]

root, entries = sys.argv[1], {{}}
for folder, folders, files in os.walk(root):
    for name in [*folders, *files]:
        path = os.path.join(folder, name)
        try:
            entries[os.path.relpath(path, root)] = entry(path)
        except OSError:
            pass
print(json.dumps({{"folder": root, "entries": entries}}))
"""
"""Program of the guest's Python. Names that are not UTF-8 keep their bytes as JSON's escapes."""


class RecordParameters(Parameters):
    dest: OutputName = "home"
    folder: FilePath = HOME


@setup_step(RecordParameters)
async def record_folder(run: TaskRun, parameters: RecordParameters) -> None:
    """Keep a record of all below a folder for ``check_folder_kept``; the last step, after other changes."""
    run.ctx.outputs[parameters.dest] = (await _record(run, parameters.folder)).encode()


class FolderParameters(Parameters):
    folder: FilePath = HOME


@getter(FolderParameters)
async def folder_record(run: TaskRun, parameters: FolderParameters) -> Value:
    """A record of all below a folder: kinds, permissions, owners, sizes, digests, targets of links."""
    try:
        record = await _record(run, parameters.folder)
    except StepProblem as error:
        return Value(missing=True, note=str(error))
    return Value(files=(await run.keep(record.encode(), "record.json"),))


async def _record(run: TaskRun, folder: str) -> str:
    """Return the record of a folder as JSON text.

    Raises:
        StepProblem: The guest gave none.
    """
    result = await run.guest.execute(
        ["python3", "-I", "-c", _PROGRAM, folder],
        shell=False,
        timeout_s=run.left(f"a record of {folder}", COMMAND_TIMEOUT_S),
        isolated=run.of_check,
    )
    try:
        json.loads(result.output)
    except ValueError:
        why = result.error.strip()[-200:] or "the output is no JSON"
        raise StepProblem(f"no record of {folder} could be made: {why}", by_replica=True) from None
    return result.output
