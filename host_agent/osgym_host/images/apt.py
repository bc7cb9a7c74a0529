"""Take over the machine's own apt settings: where Debian comes from is configured, not written here."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

_INHERITED = ("Acquire::http", "Acquire::https", "Acquire::Check-Valid-Until", "Acquire::Check-Date")


def apt_options() -> list[str]:
    """The machine's apt settings that downloading depends on (proxy, certificates, dates)."""
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
    """The machine's own source lines for Debian's `suite`, or none: then mmdebstrap's default is used.

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
