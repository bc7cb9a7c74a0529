"""One desktop of a certificate: played to the golden end, edited, scored, and put back to the golden end."""

from __future__ import annotations

import asyncio
import io
import shlex
import stat
import tarfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import assert_never

from osgym_certify.ends.base import (
    MAX_FILE_BYTES,
    Chmod,
    Copy,
    Edit,
    Move,
    Remove,
    Write,
    parent_of,
    paths_of,
)
from osgym_certify.home import HOME, LIST_PROGRAM, LISTING, STATE_FILES, Listing, read_listing, topmost_new
from osgym_host.tasks.shipped import Step, Steps, next_actions
from osgym_sdk import AsyncEpisode, Evaluation, ReachError

SAVED = "/tmp/osgym-certify.tar"  # noqa: S108 - in the desktop
SCRIPT = "/tmp/osgym-certify-script.py"  # noqa: S108 - in the desktop
FILES = "/tmp/osgym-certify-files.tar"  # noqa: S108 - in the desktop
MAX_FILES_BYTES = 64 << 20
CLOSED_WITHIN_S = 15
SCRIPT_S = 120.0
OFFICE = "/tmp/osgym-certify-office"  # noqa: S108 - in the desktop
OFFICE_S = 120.0
COMMAND_S = 60.0


class DeskError(Exception):
    """The desktop did not do what a certificate needs, such as a listing of its home."""


@dataclass
class Desk:
    """Desktop of one episode."""

    episode: AsyncEpisode
    golden: Listing = field(default_factory=dict)
    """Home at the golden end, after `save`."""
    always_prepares: bool = False
    """Whether the check reads what its preparation prints or makes, so that each score needs it."""

    async def play(self, steps: Sequence[Step]) -> None:
        """Do all steps, each on the screen that it was made for.

        Raises:
            OSGymError, TargetMissing: A step cannot be done.
        """
        ways: Steps = tuple(steps)
        for number in range(len(ways)):
            actions = await next_actions(self.episode.observation, ways, number)
            if self.episode.observation.done:
                return
            await self.episode.step(actions)

    async def run_script(self, source: str) -> None:
        """Run Python in the desktop as its user.

        Raises:
            DeskError: It failed.
        """
        await self.episode.write_file(SCRIPT, source)
        done = await self.episode.execute(["python3", SCRIPT], timeout_s=SCRIPT_S)
        if done.returncode != 0 or done.timed_out:
            raise DeskError(
                f"the script of the oracle failed ({done.returncode}): {done.stderr.strip()[-300:]}"
            )
        await self.episode.execute(["rm", "-f", SCRIPT])

    async def listing(self) -> Listing:
        """Return what the home has now.

        Raises:
            DeskError: The desktop gave no listing.
        """
        done = await self.episode.execute(["python3", "-I", "-c", LIST_PROGRAM], timeout_s=COMMAND_S)
        if done.returncode != 0:
            raise DeskError(f"the home could not be listed: {done.stderr.strip()[-300:]}")
        try:
            return read_listing(await self.episode.read_file(LISTING, max_bytes=32 << 20))
        except ValueError as error:
            raise DeskError(f"the home's listing cannot be read: {error}") from error

    async def files(self) -> Mapping[str, bytes]:
        """Return the contents of the home's visible files, and of files of programs' state that checks read.

        Raises:
            DeskError: They have more than `MAX_FILES_BYTES` together.
        """
        state = " ".join(f"-o -name {shlex.quote(name)}" for name in STATE_FILES)
        chosen = f"find . -type f -size -{MAX_FILE_BYTES >> 10}k \\( -not -path '*/.*' {state} \\) -print0"
        await self._shell(f"cd {HOME} && {chosen} | tar --null -T - -cf {FILES}")
        try:
            data = await self.episode.read_file(FILES, max_bytes=MAX_FILES_BYTES)
        except ReachError as error:
            raise DeskError(f"the files of the home could not be read: {error}") from error
        finally:
            await self._shell(f"rm -f {FILES}")
        return read_files(data)

    async def read(self, paths: Iterable[str], max_bytes: int) -> Mapping[str, bytes]:
        """Return the contents of the files that can be read and have at most this size."""
        found = {}
        for path in paths:
            try:
                found[path] = await self.episode.read_file(path, max_bytes=max_bytes)
            except ReachError:
                continue
        return found

    async def save(self) -> None:
        """Keep the home as it is now for `restore`.

        Raises:
            DeskError: It could not be kept.
        """
        self.golden = await self.listing()
        words = ["tar", "--exclude=./.cache", "--exclude=./.dbus", "-C", HOME, "-cpf", SAVED, "."]
        done = await self.episode.execute(words, timeout_s=COMMAND_S)
        if done.returncode > 1:  # 1: a file changed while it was read
            raise DeskError(f"the home could not be kept: {done.stderr.strip()[-300:]}")

    async def apply(self, edits: Sequence[Edit]) -> None:
        """Do the edits.

        Raises:
            DeskError: One of them cannot be done.
        """
        for edit in edits:
            if isinstance(edit, Write):
                await self._write(edit)
            else:
                await self._shell(command_of(edit))

    async def _write(self, edit: Write) -> None:
        """Write a file; one that is only read keeps its permissions."""
        path, entry = shlex.quote(edit.path), self.golden.get(edit.path)
        is_read_only = entry is not None and not entry.mode & stat.S_IWUSR
        if is_read_only:
            await self._shell(f"chmod u+w -- {path}")
        try:
            await self.episode.write_file(edit.path, edit.data)
        except ReachError as error:
            raise DeskError(f"{edit.path} could not be written: {error}") from error
        if entry is not None and is_read_only:
            await self._shell(f"chmod {entry.mode:o} -- {path}")

    async def restore(self, edits: Sequence[Edit]) -> None:
        """Put the paths of these edits back to what `save` kept.

        Raises:
            DeskError: It could not be done.
        """
        tops = dict.fromkeys(
            path if path in self.golden else topmost_new(path, self.golden)
            for edit in edits
            for path in paths_of(edit)
        )
        kept = [f"./{path.removeprefix(HOME + '/')}" for path in tops if path in self.golden]
        command = f"rm -rf -- {shlex.join(tops)}"
        if kept:
            command += f" && tar -C {HOME} -xpf {SAVED} -- {shlex.join(kept)}"
        await self._shell(command)

    async def saved_by_office(self, path: str) -> bytes | None:
        """Return a document as the office suite saves it again, in its own format; None without the suite."""
        folder, ending = f"{OFFICE}/out", path.rpartition(".")[2].lower()
        words = [
            "soffice",
            f"-env:UserInstallation=file://{OFFICE}/profile",
            "--headless",
            "--convert-to",
            ending,
        ]
        try:
            done = await self.episode.execute([*words, "--outdir", folder, path], timeout_s=OFFICE_S)
            if done.returncode != 0:
                return None
            return await self.episode.read_file(
                f"{folder}/{path.rpartition('/')[2]}", max_bytes=MAX_FILE_BYTES
            )
        except ReachError:
            return None
        finally:
            await self.episode.execute(["rm", "-rf", OFFICE])

    async def open_a_window(self) -> bool:
        """Leave a further window open; False if the desktop has no program for it."""
        before = len(await self.episode.windows())
        await self._shell("setsid xterm -T notes >/dev/null 2>&1 </dev/null & sleep 2")
        return len(await self.episode.windows()) > before

    async def close_windows(self) -> bool:
        """Ask all windows to close, as by their buttons; True if all are closed."""
        ids = [window.id for window in await self.episode.windows() if window.ordinary]
        await self._shell("; ".join(["true", *(f"wmctrl -ic {number:#x} || true" for number in ids)]))
        for _ in range(CLOSED_WITHIN_S):
            if not any(window.ordinary for window in await self.episode.windows()):
                return True
            await asyncio.sleep(1)
        return False

    async def score(self, *, prepare: bool) -> Evaluation:
        """Score the desktop as it is; `prepare` has the check prepare it first."""
        return await self.episode.score_now(prepare=prepare or self.always_prepares)

    async def _shell(self, command: str) -> None:
        try:
            done = await self.episode.execute(command, timeout_s=COMMAND_S)
        except ReachError as error:
            raise DeskError(f"{command[:200]}: {error}") from error
        if done.returncode != 0:
            raise DeskError(f"{command[:200]}: {done.stderr.strip()[-200:]}")


def read_files(data: bytes) -> dict[str, bytes]:
    """Read an archive of the home's files; only regular files in it count.

    Raises:
        DeskError: The data are no tar archive.
    """
    found = {}
    try:
        with tarfile.open(fileobj=io.BytesIO(data), mode="r:") as archive:
            for member in archive:
                content = archive.extractfile(member) if member.isreg() else None
                if content is not None:
                    found[f"{HOME}/{member.name.removeprefix('./')}"] = content.read()
    except (tarfile.TarError, ValueError, EOFError) as error:
        raise DeskError(f"the archive of the home cannot be read: {error}") from error
    return found


def command_of(edit: Remove | Move | Copy | Chmod) -> str:
    """Return the shell command that does an edit."""
    match edit:
        case Remove(path):
            return f"rm -rf -- {shlex.quote(path)}"
        case Move(path, to):
            return f"mkdir -p -- {shlex.quote(parent_of(to))} && mv -T -- {shlex.join((path, to))}"
        case Copy(path, to):
            return f"mkdir -p -- {shlex.quote(parent_of(to))} && cp -aT -- {shlex.join((path, to))}"
        case Chmod(path, mode):
            return f"chmod {mode:o} -- {shlex.quote(path)}"
        case _:
            assert_never(edit)
