"""Download what the machine's layer installs: apt decides outside, the image has no network."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from osgym_host.images.apt import apt_options, apt_sources
from osgym_host.images.errors import BakeError

_TIMEOUT_S = 900.0
_KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"
_INSTALLED = re.compile(r"^Inst (\S+) (?:\[\S+\] )?\((\S+) ", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Wanted:
    """What to download.

    Attributes:
        names: Packages asked for by name.
        status: dpkg's status file of the image they are to be installed into.
        cache: Where downloaded packages are kept.
        lists: Where apt keeps the mirror's lists from one bake to the next.
    """

    suite: str
    components: list[str]
    names: list[str]
    status: Path
    cache: Path
    lists: Path


def download(wanted: Wanted, target: Path) -> dict[str, str]:
    """Put the packages that are not yet installed, with what they depend on, into `target`.

    Returns:
        Package name to version of what is in `target` afterwards.

    Raises:
        BakeError: apt is missing, the mirror cannot be reached, or a package is unknown.
    """
    if shutil.which("apt-get") is None:
        raise BakeError(
            "packages", "apt-get is not installed", hint="disk images are made on Debian or Ubuntu"
        )
    options = _options(wanted, target.parent / "sources.list")
    _apt([*options, "update"])
    said = _apt([*options, "--simulate", "install", *wanted.names])
    versions = dict(sorted(_INSTALLED.findall(said)))
    _apt([*options, "--download-only", "install", *wanted.names])
    target.mkdir()
    for name, version in versions.items():
        pattern = f"{name.partition(':')[0]}_{version.replace(':', '%3a')}_*.deb"
        found = sorted(wanted.cache.glob(pattern))
        if not found:
            raise BakeError("packages", f"apt did not leave {pattern} in {wanted.cache}")
        _link_or_copy(found[-1], target / found[-1].name)
    return versions


def _options(wanted: Wanted, sources: Path) -> list[str]:
    """apt with its folders moved: it sees the image's packages and touches nothing of this machine's."""
    suite, components = wanted.suite, " ".join(wanted.components)
    mirror = f"deb [signed-by={_KEYRING}] http://deb.debian.org/debian"
    security = mirror.replace("debian.org/debian", "debian.org/debian-security")
    lines = apt_sources(suite, wanted.components) or [
        f"{mirror} {suite} {components}",
        f"{mirror} {suite}-updates {components}",
        f"{security} {suite}-security {components}",
    ]
    sources.write_text("\n".join(lines) + "\n")
    (wanted.lists / "partial").mkdir(parents=True, exist_ok=True)
    (wanted.cache / "partial").mkdir(parents=True, exist_ok=True)
    settings = {
        "Dir::State": wanted.lists.parent,
        "Dir::State::lists": wanted.lists,
        "Dir::State::status": wanted.status,
        "Dir::State::extended_states": "/dev/null",
        "Dir::Cache::archives": wanted.cache,
        "Dir::Cache::pkgcache": "",
        "Dir::Cache::srcpkgcache": "",
        "Dir::Etc::sourcelist": sources,
        "Dir::Etc::sourceparts": "/dev/null",
        "Dir::Etc::preferences": "/dev/null",
        "Dir::Etc::preferencesparts": "/dev/null",
        "APT::Architecture": "amd64",
        "APT::Architectures": "amd64",
        "APT::Install-Recommends": "false",
        "APT::Sandbox::User": "",
        "Acquire::Languages": "none",
        "Debug::NoLocking": "true",
    }
    pairs = [
        *(f"{name}={value}" for name, value in settings.items()),
        *(_pair(line) for line in apt_options()),
    ]
    return ["--quiet", "--yes", *(word for pair in pairs for word in ("-o", pair))]


def _pair(line: str) -> str:
    """`Name "value"` of apt-config as the `Name=value` of the command line."""
    name, _, value = line.partition(" ")
    return f"{name}={value.strip().strip(chr(34))}"


def _apt(arguments: list[str]) -> str:
    env = {**os.environ, "LC_ALL": "C.UTF-8", "DEBIAN_FRONTEND": "noninteractive"}
    try:
        done = subprocess.run(
            ["apt-get", *arguments], env=env, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired as exc:
        raise BakeError("packages", f"apt-get took longer than {_TIMEOUT_S:.0f} s") from exc
    if done.returncode != 0:
        hint = "the package mirror could not be reached, or a package is unknown"
        raise BakeError("packages", "apt-get failed", (done.stdout + done.stderr)[-3000:], hint)
    return done.stdout


def _link_or_copy(source: Path, target: Path) -> None:
    try:
        target.hardlink_to(source)
    except OSError:
        shutil.copyfile(source, target)
