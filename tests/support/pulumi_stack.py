"""A stack of the real project under the real engine, in a folder of its own."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from osgym_infra.preview import run as preview
from tests.support import ROOT

CALL_S = 400
STACK = "test"

Popen = Callable[..., "subprocess.Popen[str]"]


@dataclass
class OwnStack:
    """The real `Pulumi.yaml`, program and provider, with state and configuration in `folder`.

    Attributes:
        prefix: what commands are started by: nothing, or what enters another machine.
        printed: everything that commands printed, to be searched for secrets.
    """

    folder: Path
    prefix: list[str] = field(default_factory=list)
    printed: list[str] = field(default_factory=list)

    def make(self) -> None:
        """The project: links to this tree and this environment, and an empty stack."""
        self.folder.mkdir(parents=True, exist_ok=True)
        for name, target in (("Pulumi.yaml", ROOT), ("infra", ROOT), (".venv", None)):
            (self.folder / name).symlink_to(sys.prefix if target is None else target / name)
        self.configure({})
        self.run("stack", "init", STACK)

    def configure(self, values: Mapping[str, object]) -> None:
        """Replaces the stack's configuration; what the CLI keeps there stays."""
        path = self.folder / f"Pulumi.{STACK}.yaml"
        kept = yaml.safe_load(path.read_text()) if path.exists() else {}
        path.write_text(yaml.safe_dump({**kept, "config": {f"osgym:{k}": v for k, v in values.items()}}))

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        """Starts a command of the CLI."""
        chosen = [] if arguments[:2] == ("stack", "init") else ["--stack", STACK]
        return subprocess.Popen(
            [*self.prefix, "pulumi", *arguments, *chosen, "--non-interactive", "--cwd", str(self.folder)],
            env=self.environment(), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip

    def environment(self) -> dict[str, str]:
        """Of every command."""
        return preview.environment(self.folder, os.environ)

    def finish(self, process: subprocess.Popen[str], ok: bool = True) -> str:
        """What a started command printed; it shall succeed or fail."""
        try:
            text, _ = process.communicate(timeout=CALL_S)
        except subprocess.TimeoutExpired:
            process.kill()
            text, _ = process.communicate()
            raise AssertionError(f"not within {CALL_S} s: {text}") from None
        self.printed.append(text)
        assert (process.returncode == 0) == ok, text
        return text

    def run(self, *arguments: str, ok: bool = True) -> str:
        """One command of the CLI."""
        return self.finish(self.start(*arguments), ok)

    def up(self, ok: bool = True) -> str:
        """`pulumi up`, past hosts that fail."""
        return self.run("up", "--yes", "--continue-on-error", "-p", "256", "--suppress-progress", ok=ok)

    def export_fleet(self) -> tuple[dict[str, Any], str]:
        """`osgym fleet export` with a token file; fleet.json's content and what was said on stderr."""
        argv = [*self.prefix, str(Path(sys.executable).with_name("osgym")), "fleet", "export"]
        argv += ["--stack", STACK, "--cwd", str(self.folder), "--token-file", str(self.folder / "token")]
        done = subprocess.run(
            argv, env=self.environment(), capture_output=True, text=True, timeout=CALL_S, check=False
        )
        self.printed.append(done.stdout + done.stderr)
        assert done.returncode == 0, done.stderr
        (self.folder / "fleet.json").write_text(done.stdout)
        found: dict[str, Any] = json.loads(done.stdout)
        return found, done.stderr

    def hosts(self) -> dict[str, dict[str, Any]]:
        """The hosts in the state, by address."""
        state = json.loads(self.run("stack", "export"))
        resources = state["deployment"].get("resources", [])
        return {r["inputs"]["address"]: r for r in resources if r["type"] == "osgym:index:SshHost"}

    def assert_nowhere_in_clear(self, secret: str) -> None:
        """A secret stands in no file of the engine, and in nothing that was printed."""
        places = {str(p): p.read_bytes() for p in self.folder.rglob("*") if p.is_file() and p.name != "token"}
        assert any(path.endswith(".json") for path in places)
        for where, data in places.items():
            assert secret.encode() not in data, where
        for text in self.printed:
            assert secret not in text

    def remove(self) -> None:
        """Takes down what a test that failed left up."""
        with contextlib.suppress(AssertionError):
            self.run("destroy", "--yes", "--continue-on-error", "--suppress-progress")
