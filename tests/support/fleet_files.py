"""A fleet.json for tests: hosts with certificates of an authority of their own."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from osgym_infra.hosts import tls

TOKEN = "a-token-of-tests"


@dataclass(frozen=True)
class Authority:
    """Signs certificates of hosts. `names`: what all of them hold."""

    folder: Path
    credential: tls.Credential

    @property
    def pem(self) -> str:
        return self.credential.certificate

    def certificate(self, name: str, addresses: Sequence[str] = ("127.0.0.1",)) -> dict[str, str]:
        """Files of a certificate and its key, as uvicorn takes them."""
        made = tls.issue(self.credential, addresses, datetime.now(UTC))
        paths = {"ssl_certfile": self.folder / f"{name}.pem", "ssl_keyfile": self.folder / f"{name}.key"}
        paths["ssl_certfile"].write_text(made.certificate)
        paths["ssl_keyfile"].write_text(made.key)
        return {option: str(path) for option, path in paths.items()}


def authority(folder: Path) -> Authority:
    """A new one."""
    folder.mkdir(parents=True, exist_ok=True)
    return Authority(folder, tls.make_ca("fleet of tests", datetime.now(UTC)))


def write_fleet(path: Path, hosts: Sequence[dict[str, Any]], ca: str = "", **values: Any) -> Path:
    """Writes a fleet.json with the token in a file beside it."""
    (path.parent / "token").write_text(TOKEN + "\n")
    fleet = {"schema_version": 1, "stack": "test", "provider": "ssh", "region": "", "ca": ca,
             "token_secret": "file:token", "hosts": list(hosts), **values}  # fmt: skip
    path.write_text(json.dumps(fleet))
    return path
