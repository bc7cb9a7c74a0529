"""Package lock: the exact version of every package, by which a bake can be repeated."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

from osgym_host.images.errors import DefinitionError


@dataclass(frozen=True, slots=True)
class PackageLock:
    """Package name to version."""

    versions: dict[str, str]

    @classmethod
    def read(cls, path: Path) -> PackageLock:
        """Parse a file of `name=version` lines; `#` begins a comment.

        Raises:
            DefinitionError: The file cannot be read or has another line.
        """
        versions = {}
        try:
            lines = path.read_text().splitlines()
        except OSError as exc:
            raise DefinitionError(f"the lock {path} cannot be read: {exc.strerror}") from exc
        for number, raw in enumerate(lines, 1):
            line = raw.partition("#")[0].strip()
            if not line:
                continue
            name, equals, version = line.partition("=")
            if not (name and equals and version):
                raise DefinitionError(f"{path}:{number}: {raw!r} is not name=version")
            versions[name] = version
        return cls(versions)

    @classmethod
    def of_dpkg_status(cls, text: str) -> PackageLock:
        """Return the installed packages that a dpkg status file lists."""
        versions = {}
        for stanza in text.split("\n\n"):
            fields = dict(
                line.split(": ", 1) for line in stanza.splitlines() if ": " in line and line[0] not in " \t"
            )
            if fields.get("Status", "").endswith(" installed"):
                versions[fields["Package"]] = fields["Version"]
        return cls(dict(sorted(versions.items())))

    def text(self) -> str:
        return "".join(f"{name}={version}\n" for name, version in sorted(self.versions.items()))

    @property
    def digest(self) -> str:
        """Return the SHA-256 of `text()`."""
        return hashlib.sha256(self.text().encode()).hexdigest()

    def preferences(self) -> str:
        """Return pins for apt that choose exactly these versions."""
        return "\n".join(
            f"Package: {name}\nPin: version {version}\nPin-Priority: 1001\n"
            for name, version in sorted(self.versions.items())
        )

    def differences(self, installed: PackageLock) -> list[str]:
        said = []
        for name, version in installed.versions.items():
            wanted = self.versions.get(name)
            if wanted is None:
                said.append(f"{name} {version} is not in the lock")
            elif wanted != version:
                said.append(f"{name} has version {version} instead of {wanted} of the lock")
        missing = sorted(self.versions.keys() - installed.versions.keys())
        return said + [f"{name} of the lock is not installed" for name in missing]
