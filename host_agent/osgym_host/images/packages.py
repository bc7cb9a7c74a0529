"""Package part of an image: a tar stream of mmdebstrap, hashed while it is unpacked."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shlex
import shutil
import subprocess
import threading
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from osgym_host.images.apt import apt_options, apt_sources
from osgym_host.images.definition_model import Definition
from osgym_host.images.errors import BakeError
from osgym_host.images.idmap import IdMap
from osgym_host.images.lock import PackageLock
from osgym_host.images.namespaces import NamespaceSpec, running
from osgym_host.images.progress import BakeProgress

_CHUNK = 1 << 20
_TAIL_LINES = 40
_TOTAL = re.compile(r"(\d+) upgraded, (\d+) newly installed")
_EVENTS = (
    ("download", re.compile(r"^Get:\d+ .* \[[\d.,]+ k?M?B\]$")),
    ("unpack", re.compile(r"^Unpacking ")),
    ("configure", re.compile(r"^Setting up ")),
)


@dataclass(frozen=True, slots=True)
class PackageBake:
    """Options of the package part, and the folders for downloads."""

    definition: Definition
    flavor: str
    cache: Path
    scratch: Path
    lock: PackageLock | None


def mmdebstrap_argv(bake: PackageBake, *, root: bool, preferences: Path | None) -> list[str]:
    """Return the command that writes the package part as a tar stream to its standard output."""
    wanted = bake.definition
    archives = "/var/cache/apt/archives"
    cache = shlex.quote(str(bake.cache))
    argv = [
        "mmdebstrap",
        f"--mode={'root' if root else 'unshare'}",
        "--variant=minbase",
        "--format=tar",
        "--verbose",
        f"--components={','.join(wanted.components)}",
        f"--include={','.join(wanted.packages(bake.flavor))}",
        '--aptopt=Acquire::Languages "none"',
        '--aptopt=APT::Install-Recommends "false"',
        "--dpkgopt=force-unsafe-io",
        "--skip=download/empty",
        "--skip=essential/unlink",
    ]
    argv += [f"--aptopt={option}" for option in apt_options()]
    argv += [f"--dpkgopt=path-exclude={pattern}" for pattern in wanted.excludes(bake.flavor)]
    argv += [f"--dpkgopt=path-include={pattern}" for pattern in wanted.dpkg.include]
    for path, name in wanted.links(bake.flavor).items():
        here = f'"$1"{shlex.quote(str(Path(path).parent))}'
        argv.append(f"--customize-hook=ln {here}/{shlex.quote(name)} {here}/{shlex.quote(Path(path).name)}")
    if preferences is not None:
        argv.append(f"--setup-hook=copy-in {shlex.quote(str(preferences))} /etc/apt/preferences.d/")
        argv.append('--customize-hook=rm -f "$1"/etc/apt/preferences.d/' + shlex.quote(preferences.name))
    if root:
        argv += [
            f'--setup-hook=mkdir -p "$1"{archives}; cp -al {cache}/. "$1"{archives}/ 2>/dev/null '
            f'|| cp -a {cache}/. "$1"{archives}/',
            f'--customize-hook=cp -alnf "$1"{archives}/*.deb {cache}/ 2>/dev/null '
            f'|| cp -an "$1"{archives}/*.deb {cache}/; rm -rf "$1"{archives}/*',
        ]
    else:
        argv += [
            f'--setup-hook=mkdir -p "$1"{archives}',
            f"--setup-hook=sync-in {cache} {archives}",
            f"--customize-hook=sync-out {archives} {cache}",
            f'--customize-hook=rm -rf "$1"{archives}/*; chown 0:0 "$1"{archives}',
        ]
    return [*argv, wanted.suite, "-", *apt_sources(wanted.suite, wanted.components)]


def bake_packages(bake: PackageBake, target: Path, idmap: IdMap, progress: BakeProgress) -> str:
    """Bake the package part and unpack it as `target` with shifted owners.

    Returns:
        SHA-256 of the tar stream.

    Raises:
        BakeError: mmdebstrap or tar failed; the error has the end of the log.
    """
    if shutil.which("mmdebstrap") is None:
        raise BakeError("packages", "mmdebstrap is not installed", hint="install the package mmdebstrap")
    preferences = None
    if bake.lock is not None:
        preferences = bake.scratch / "osgym-lock.pref"
        preferences.write_text(bake.lock.preferences())
    root = os.geteuid() == 0
    argv = mmdebstrap_argv(bake, root=root, preferences=preferences)
    env = {
        **os.environ,
        # Some packages write the home of whoever installs them into their caches.
        "HOME": "/nonexistent",
        "LC_ALL": "C.UTF-8",
        "SOURCE_DATE_EPOCH": str(bake.definition.source_date_epoch),
    }
    if root:
        env["TMPDIR"] = str(bake.scratch)
    tail: deque[str] = deque(maxlen=_TAIL_LINES)
    with _mmdebstrap(argv, env, bake.scratch) as maker:
        assert maker.stdout is not None and maker.stderr is not None
        reader = threading.Thread(target=_follow, args=(maker.stderr, tail, progress), daemon=True)
        reader.start()
        digest = _unpack(maker.stdout, target, idmap, lambda: progress.stage("write"))
        status = maker.wait()
        reader.join(timeout=30)
    if status != 0:
        raise BakeError("packages", f"mmdebstrap ended with {status}", "\n".join(tail), _hint(tail))
    return digest


@contextlib.contextmanager
def _mmdebstrap(argv: list[str], env: dict[str, str], scratch: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Run mmdebstrap as a child that dies with us and, for root, takes all its children with it."""
    pipe = subprocess.PIPE
    if os.geteuid() == 0:
        inside = NamespaceSpec(scratch, None, network=True, env=env)
        with running(inside, argv, stdout=pipe, stderr=pipe) as process:
            yield process
        return
    process = subprocess.Popen(
        argv, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe, env=env, start_new_session=True
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(timeout=20)
            process.kill()
        process.wait()


def _unpack(stream: IO[bytes], target: Path, idmap: IdMap, begun: Callable[[], None]) -> str:
    """Hash the tar stream and unpack it below `target` inside a user namespace."""
    value = hashlib.sha256()
    argv = [
        "tar",
        "--extract",
        "--numeric-owner",
        "--same-permissions",
        "--exclude=./dev/*",
        "-C",
        target.name,
    ]
    with running(
        NamespaceSpec(target.parent, idmap), argv, stdin=subprocess.PIPE, stderr=subprocess.PIPE
    ) as tar:
        assert tar.stdin is not None and tar.stderr is not None
        first = True
        try:
            while chunk := stream.read(_CHUNK):
                if first:
                    begun()
                    first = False
                value.update(chunk)
                tar.stdin.write(chunk)
            tar.stdin.close()
        except BrokenPipeError:
            pass
        errors = tar.stderr.read().decode(errors="replace")
        if tar.wait() != 0 and not first:
            raise BakeError("packages", "unpacking failed", errors[-2000:])
    return value.hexdigest()


def _follow(stream: IO[bytes], tail: deque[str], progress: BakeProgress) -> None:
    """Turn the output of apt and dpkg into progress."""
    for raw in stream:
        line = raw.decode(errors="replace").rstrip()
        tail.append(line)
        if found := _TOTAL.search(line):
            progress.expect(int(found.group(2)))
        for stage, pattern in _EVENTS:
            if pattern.search(line):
                progress.count(
                    stage, line.split()[4 if stage == "download" else -2 if stage == "configure" else 1]
                )
        if line.startswith("I: "):
            progress.note(line[3:])


def _hint(tail: deque[str]) -> str:
    text = "\n".join(tail)
    if "Temporary failure resolving" in text or "Failed to fetch" in text:
        return "the package mirror could not be reached; check apt-get update on this machine"
    if "was not found" in text:
        return "a locked version is no longer on the mirror; bake without --lock"
    if "newuidmap" in text or "subuid" in text:
        return "an ordinary user needs the package uidmap and ranges in /etc/subuid and /etc/subgid"
    return ""
