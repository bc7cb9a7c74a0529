"""`osgym checkpoint` against a running service (over fake replicas)."""

from __future__ import annotations

import json
from pathlib import Path

from tests.support.fake_runtime import TASK, Served
from tests.support.host_process import osgym

from osgym_sdk import Client


def test_list_export_import_remove(tmp_path: Path) -> None:
    """What the table, the file and the exit codes say is true."""
    with Served(tmp_path) as served:
        env = {"OSGYM_HOSTS": served.urls[0]}
        with Client(served.urls[0]) as client, client.episode(TASK) as episode:
            episode.step("click(1,1)")
            kept = episode.checkpoint(keep=True).checkpoint_id
            fleeting = episode.checkpoint(ttl_s=500).checkpoint_id
            table = osgym("checkpoint", "ls", **env).stdout
            assert kept in table
            assert fleeting in table
            assert "say-yes" in table
            assert "84 of 16384 MiB used" in table
            file = tmp_path / "moved"
            done = osgym("checkpoint", "export", kept, str(file), **env)
            assert done.returncode == 0, done.stderr
            assert list(tmp_path.glob("moved*")) == [file]
            refused = osgym("checkpoint", "export", fleeting, str(tmp_path / "no"), **env)
            assert refused.returncode == 1
            assert "409" in refused.stderr
            assert not list(tmp_path.glob("no*"))
        taken = osgym("checkpoint", "import", str(file), **env)
        assert taken.returncode == 0, taken.stderr
        removed = osgym("checkpoint", "rm", kept, **env)
        assert removed.returncode == 0, removed.stderr
        listed = json.loads(osgym("checkpoint", "ls", "--json", **env).stdout)
        assert [c["checkpoint_id"] for c in listed["checkpoints"]] == [taken.stdout.strip()]
        file.write_bytes(b"nonsense")
        broken = osgym("checkpoint", "import", str(file), **env)
        assert broken.returncode == 1
        assert "is not a checkpoint" in broken.stderr
        again = osgym("checkpoint", "rm", kept, **env)
        assert again.returncode == 1
        assert "does not have the checkpoint" in again.stderr
