"""`osgym fleet pack` and `export` as commands: what they write, what they leave, without the real engine."""

from __future__ import annotations

import json
import os
import stat
import subprocess
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from osgym_infra.archives import make
from osgym_infra.archives.pack import PackedArchive
from osgym_infra.cli import fleet as fleet_cli
from osgym_infra.cli.main import main

ENGINE = """#!/bin/sh
case "$1 $2" in
  "stack output") cat "$ANSWERS/outputs" ;;
  "stack export") cat "$ANSWERS/state" ;;
esac
"""
HOST = {"id": "local", "url": "https://127.0.0.1:20000", "capacity": 2}


def state(*hosts: dict[str, Any]) -> str:
    """What the engine exports of own machines that serve."""
    secrets = {
        "type": "osgym:index:FleetSecrets",
        "outputs": {"token": "of-the-agents", "caCertificate": "CA"},
    }
    rows = [{"type": "osgym:index:SshHost", "id": host["id"], "outputs": {"entry": host, "serving": True}}
            for host in hosts]  # fmt: skip
    return json.dumps({"deployment": {"resources": [secrets, *rows]}})


@pytest.fixture
def answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of what a `pulumi` that answers from files says."""
    found = tmp_path / "answers"
    found.mkdir()
    (found / "outputs").write_text("{}")
    (found / "state").write_text(state(HOST))
    engine = tmp_path / "bin" / "pulumi"
    engine.parent.mkdir()
    engine.write_text(ENGINE)
    engine.chmod(0o755)
    monkeypatch.setenv("PATH", f"{engine.parent}:{os.environ['PATH']}")
    monkeypatch.setenv("ANSWERS", str(found))
    return found


def run(*arguments: str) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of `osgym fleet …`."""
    done = CliRunner().invoke(main, ["fleet", *arguments])
    return done.exit_code, done.stdout, done.stderr


def test_an_agent_is_packed_where_there_is_no_store_yet(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first `pulumi up` of a machine packs it while the bake makes the store, or before."""

    def packed(root: Path, target: Path) -> PackedArchive:
        target.parent.mkdir(parents=True)
        target.write_bytes(b"wheels")
        return PackedArchive(target, "ab" * 32)

    monkeypatch.setattr(fleet_cli, "pack_agent", packed)
    monkeypatch.setenv("OSGYM_DATA_DIR", str(tmp_path / "nowhere"))
    code, out, err = run("pack", "--only", "agent", "--out", str(tmp_path / "out"))
    assert code == 0, err
    assert json.loads(out)["path"] == str(tmp_path / "out" / f"agent-{'ab' * 8}.tar")
    code, _, err = run("pack", "--only", "image", "--out", str(tmp_path / "out"))
    assert code == 1
    assert "osgym image build" in err
    assert not (tmp_path / "nowhere").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="missing: root")
def test_what_sudo_packs_belongs_to_who_asked(tmp_path: Path) -> None:
    """Their `pulumi up` has to read it, to upload it; nobody else may."""
    image = tmp_path / "store" / "images" / ("cd" * 32)
    image.mkdir(parents=True)
    (image / "manifest.json").touch()
    (image.parent / "tags").mkdir()
    (image.parent / "tags" / "small").write_text("cd" * 32)
    done = subprocess.run(
        [*make.PACK, "--only", "image", "--image", "small", "--data-dir", str(tmp_path / "store"),
         "--out", str(tmp_path / "out")],
        env={**os.environ, "SUDO_UID": "4242", "SUDO_GID": "4243"}, capture_output=True, text=True,
        check=True,
    )  # fmt: skip
    found = Path(json.loads(done.stdout)["path"]).stat()
    assert (found.st_uid, found.st_gid, stat.S_IMODE(found.st_mode)) == (4242, 4243, 0o600)


def test_an_export_is_written_whole_or_not_at_all(answers: Path, tmp_path: Path) -> None:
    """A failure leaves the former file, nothing beside it, and an exit code; a token is its owner's only."""
    out, token = tmp_path / "here" / "fleet.json", tmp_path / "here" / "token"
    code, printed, err = run("export", "--out", str(out), "--token-file", str(token))
    assert (code, printed) == (0, ""), err
    assert "1 hosts, 2 replicas" in err
    first = out.read_text()
    assert json.loads(first)["hosts"] == [HOST]
    assert (stat.S_IMODE(out.stat().st_mode), stat.S_IMODE(token.stat().st_mode)) == (0o644, 0o600)
    assert token.read_text() == "of-the-agents\n"

    for broken in ("", "{", json.dumps({"deployment": {"resources": []}})):
        (answers / "state").write_text(broken)
        code, printed, err = run("export", "--out", str(out))
        assert (code, printed) == (1, "")
        assert err.startswith("export: ")
        assert out.read_text() == first
    assert sorted(path.name for path in out.parent.iterdir()) == ["fleet.json", "token"]


def test_an_export_that_cannot_be_written_says_why(answers: Path, tmp_path: Path) -> None:
    """The place, and no traceback."""
    (tmp_path / "file").touch()
    code, _, err = run("export", "--out", str(tmp_path / "file" / "fleet.json"))
    assert code == 1
    assert (
        err == f"export: {tmp_path}/file/fleet.json cannot be written: Not a directory\n"
        or "File exists" in err
    )
