"""Debian packages by the machine's own apt settings, which name the mirrors."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from osgym_host.images.errors import BakeError

_INHERITED = ("Acquire::http", "Acquire::https", "Acquire::Check-Valid-Until", "Acquire::Check-Date")
_APT_TIMEOUT_S = 900.0
_KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"
_INSTALLED = re.compile(r"^Inst (\S+) (?:\[\S+\] )?\((\S+) ", re.MULTILINE)


def apt_options() -> list[str]:
    """Return the machine's apt settings that downloading depends on (proxy, certificates, dates)."""
    if shutil.which("apt-config") is None:
        return []
    done = subprocess.run(["apt-config", "dump"], capture_output=True, text=True, timeout=30, check=False)
    kept = []
    for line in done.stdout.splitlines():
        name, _, value = line.partition(" ")
        if name.startswith(_INHERITED) and value not in ('"";', ""):
            kept.append(line.rstrip(";"))
    return kept


def apt_sources(suite: str, components: list[str], folder: Path = Path("/etc/apt")) -> list[str]:
    """Return the machine's own source lines for Debian's `suite`; empty for mmdebstrap's default.

    Returns:
        One-line-style entries of the suite, its updates and its security updates.
    """
    suites = {suite, f"{suite}-updates", f"{suite}-security"}
    lines = []
    for path in sorted([folder / "sources.list", *folder.glob("sources.list.d/*")]):
        if not path.is_file():
            continue
        text = path.read_text(errors="replace")
        found = _deb822(text) if path.suffix == ".sources" else _one_line(text)
        for uri, its_suite, its_components, signed_by in found:
            wanted = [name for name in components if name in its_components]
            debian = not signed_by or "debian-archive" in signed_by
            if its_suite in suites and wanted and debian and uri.startswith(("http:", "https:")):
                option = f"[signed-by={signed_by}] " if signed_by else ""
                lines.append(f"deb {option}{uri} {its_suite} {' '.join(wanted)}")
    return list(dict.fromkeys(lines)) if any(line.split()[-2] == suite for line in lines) else []


_Entry = tuple[str, str, list[str], str]


def _deb822(text: str) -> list[_Entry]:
    entries: list[_Entry] = []
    for stanza in text.split("\n\n"):
        fields: dict[str, str] = {}
        for line in stanza.splitlines():
            name, colon, value = line.partition(":")
            if colon and not line.startswith(("#", " ")):
                fields[name.strip().lower()] = value.strip()
        if "deb" not in fields.get("types", "").split() or fields.get("enabled", "yes") == "no":
            continue
        for uri in fields.get("uris", "").split():
            for suite in fields.get("suites", "").split():
                entries.append(
                    (uri, suite, fields.get("components", "").split(), fields.get("signed-by", ""))
                )
    return entries


def _one_line(text: str) -> list[_Entry]:
    entries: list[_Entry] = []
    for raw in text.splitlines():
        line = raw.strip()
        if not line.startswith("deb "):
            continue
        signed_by = ""
        rest = line[4:].strip()
        if rest.startswith("["):
            options, _, rest = rest[1:].partition("]")
            for option in options.split():
                name, _, value = option.partition("=")
                signed_by = value if name == "signed-by" else signed_by
        words = rest.split()
        if len(words) >= 3:
            entries.append((words[0], words[1], words[2:], signed_by))
    return entries


@dataclass(frozen=True, slots=True)
class WantedPackages:
    """Packages to download.

    Attributes:
        status: dpkg's status file of the image into which they are to be installed.
        lists: Folder of the mirror's lists, kept from one bake to the next.
    """

    suite: str
    components: list[str]
    names: list[str]
    status: Path
    cache: Path
    lists: Path


def download(wanted: WantedPackages, target: Path) -> dict[str, str]:
    """Download the packages that are not yet installed, with their dependencies, into `target`.

    Returns:
        Package name to version of the content of `target` afterwards.

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
            raise BakeError("packages", f"apt did not download {pattern} to {wanted.cache}")
        _link_or_copy(found[-1], target / found[-1].name)
    return versions


def _options(wanted: WantedPackages, sources: Path) -> list[str]:
    """Return options that move apt's folders, so that it changes nothing of this machine."""
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
    """Return `Name "value"` of apt-config as the `Name=value` of the command line."""
    name, _, value = line.partition(" ")
    return f"{name}={value.strip().strip(chr(34))}"


def _apt(arguments: list[str]) -> str:
    env = {**os.environ, "LC_ALL": "C.UTF-8", "DEBIAN_FRONTEND": "noninteractive"}
    try:
        done = subprocess.run(
            ["apt-get", *arguments],
            env=env,
            capture_output=True,
            text=True,
            timeout=_APT_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired as exc:
        raise BakeError("packages", f"apt-get took longer than {_APT_TIMEOUT_S:.0f} s") from exc
    if done.returncode != 0:
        hint = "the package mirror could not be reached, or a package is unknown"
        raise BakeError("packages", "apt-get failed", (done.stdout + done.stderr)[-3000:], hint)
    return done.stdout


def _link_or_copy(source: Path, target: Path) -> None:
    try:
        target.hardlink_to(source)
    except OSError:
        shutil.copyfile(source, target)
