"""The programs of AWS and Google Cloud under the real engine, with fakes for the providers.

Skips without the `pulumi` CLI on PATH. State and passphrase lie in the test's folder.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.support import cloud_requests
from tests.support.fleet_configs import AWS

from osgym_host.images.store import Image, ImageStore, default_data_dir
from osgym_infra.preview import run as preview

pytestmark = [
    pytest.mark.skipif(shutil.which("pulumi") is None, reason="missing: the pulumi CLI on PATH"),
    pytest.mark.timeout(900),
]

CALL_S = 240
BASE: dict[str, object] = {**AWS, "host_type": "r8i.24xlarge"}


@dataclass
class Stack:
    """A project with one stack, and everything that its commands printed."""

    folder: Path
    printed: list[str] = field(default_factory=list)

    def run(self, *arguments: str, ok: bool = True, keep: bool = True) -> str:
        """One command of the CLI; returns what it printed.

        Args:
            ok: whether it shall succeed.
            keep: whether what it prints is searched for secrets later.
        """
        done = subprocess.run(
            ["pulumi", *arguments, "--non-interactive", "--stack", "test"],
            cwd=self.folder,
            env=preview.environment(self.folder, os.environ),
            capture_output=True,
            text=True,
            timeout=CALL_S,
            check=False,
        )
        text = done.stdout + done.stderr
        assert (done.returncode == 0) == ok, text
        if keep:
            self.printed.append(text)
        return done.stdout if ok else text

    def configure(self, values: Mapping[str, object]) -> None:
        """Replaces the stack's configuration."""
        path = self.folder / "Pulumi.test.yaml"
        # What the CLI itself keeps there stays: the passphrase's salt.
        kept = yaml.safe_load(path.read_text()) if path.exists() else {}
        config = {f"osgym:{name}": value for name, value in values.items()}
        path.write_text(yaml.safe_dump({**kept, "config": config}))

    def steps(self) -> dict[str, Counter[str]]:
        """What a preview would do: kinds of resources by operation."""
        found = json.loads(self.run("preview", "--json"))
        steps: dict[str, Counter[str]] = {}
        for step in found["steps"]:
            kind = step["urn"].split("::")[2].split("$")[-1].rpartition(":")[2]
            steps.setdefault(step["op"], Counter())[kind] += 1
        return steps

    def outputs(self) -> dict[str, Any]:
        """The stack's outputs."""
        found: dict[str, Any] = json.loads(self.run("stack", "output", "--json"))
        return found

    def resources(self, clear: bool = False) -> list[dict[str, Any]]:
        """The state's resources; `clear`: with secrets decrypted."""
        text = self.run("stack", "export", *(["--show-secrets"] if clear else []), keep=not clear)
        found: list[dict[str, Any]] = json.loads(text)["deployment"].get("resources", [])
        return found

    def bundle(self) -> dict[str, str]:
        """The fleet's secret in clear."""
        (version,) = [r for r in self.resources(clear=True) if r["type"].endswith(":SecretVersion")]
        found = version["inputs"].get("secretString") or version["inputs"]["secretData"]
        text = found["plaintext"] if isinstance(found, dict) else found
        secret: dict[str, str] = json.loads(json.loads(text) if text.startswith('"') else text)
        return secret


@pytest.fixture
def stack(tmp_path: Path) -> Stack:
    """An empty stack of our programs, with fakes."""
    preview.copy_project(tmp_path, refusals=cloud_requests.__name__)
    made = Stack(tmp_path)
    made.configure({})
    made.run("stack", "init")
    return made


def assert_nowhere_in_clear(stack: Stack, bundle: Mapping[str, str]) -> None:
    """Token and key stand in no file of the state, no output and nothing that was printed."""
    places = {
        str(path): path.read_text("utf-8", "replace") for path in (stack.folder / "state").rglob("*.json*")
    }
    assert places
    places |= {"printed": "\n".join(stack.printed), "outputs": json.dumps(stack.outputs())}
    for secret in (bundle["token"], bundle["key"].splitlines()[1]):
        assert len(secret) > 40
        assert [name for name, text in places.items() if secret in text] == []


NAMED = ("image_uri", "image_sha256", "image_digest", "agent_uri", "agent_sha256")


@pytest.mark.desktop
def test_what_hosts_fetch_is_made_once(
    stack: Stack, small_image: Image, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing in a preview; baked or found, packed and uploaded by the first up, nothing by the second; a
    change of the definition is seen in a preview; destroy removes the archives, and no image."""
    base = {name: value for name, value in BASE.items() if name not in NAMED}
    kept = tmp_path / "archives"
    stack.configure({**base, "image_name": "small", "runtime": "local", "archives": str(kept)})
    planned = stack.steps()["create"]
    assert (planned["ImageArchive"], planned["AgentArchive"], planned["BucketObjectv2"]) == (1, 1, 3)
    assert not kept.exists()

    stack.run("up", "--yes", "--skip-preview")
    names = {path.name for path in kept.iterdir()}
    assert sorted(name.partition("-")[0] for name in names) == ["agent", "small"]
    stored = [r["inputs"] for r in stack.resources() if r["type"].endswith(":BucketObjectv2")]
    keys = {one["key"] for one in stored if "source" in one}
    assert keys == {f"osgym/test/{name}" for name in names}
    assert [one["key"].partition("-")[0] for one in stored if "content" in one] == ["osgym/test/bootstrap"]
    (image,) = [r["outputs"] for r in stack.resources() if r["type"].endswith(":ImageArchive")]
    assert {host["image_digest"] for host in stack.outputs()["hosts"]} == {image["digest"]}

    stack.run("up", "--yes", "--skip-preview", "--expect-no-changes")
    assert {path.name for path in kept.iterdir()} == names
    with monkeypatch.context() as other:
        other.setenv("OSGYM_IMAGES_DIR", str(_changed_definition(tmp_path)))
        other.setenv("OSGYM_GUEST_DIR", str(preview.ROOT / "guest_agent"))
        assert stack.steps()["update"]["ImageArchive"] == 1

    stack.run("destroy", "--yes", "--skip-preview")
    assert list(kept.iterdir()) == []
    assert ImageStore(default_data_dir()).resolve(image["digest"])


def _changed_definition(folder: Path) -> Path:
    """The images' definition of this tree with one more script."""
    made = Path(shutil.copytree(preview.ROOT / "images", folder / "images"))
    (made / "provision" / "guest" / "99-more").write_text("true\n")
    return made


WRONG: list[tuple[dict[str, object], str]] = [
    ({"replica": 5}, "osgym:replica: is not a valid key. Did you mean replicas?"),
    ({"provider": "azure"}, "osgym:provider: 'azure' does not fit. aws | gcp | ssh"),
    ({"budget_usd_per_day": 1}, "osgym:budget_usd_per_day: 1024 replicas cost at least"),
    ({"replica_ram_gib": 9000}, "osgym:replica_ram_gib: a replica of 9000"),
    ({"host_type": "m7i.large"}, "osgym:host_type"),
    ({"region": "mars-north-1"}, "osgym:region: the catalogue has no prices for 'mars-north-1'"),
    ({"allowed_cidrs": '["0.0.0.0/0"]'}, "osgym:allowed_cidrs"),
    ({"archives": "out"}, "osgym:archives: has no effect with image_uri and agent_uri"),
]


def test_a_mistake_fails_in_preview_by_its_name(stack: Stack) -> None:
    """The sentence with key and what would fit, no traceback, and nothing created."""
    for values, sentence in WRONG:
        stack.configure({**AWS, **values})
        printed = stack.run("preview", ok=False)
        assert sentence in printed
        assert "Traceback" not in printed
    assert stack.resources() == []


OPEN = """
import pulumi
import pulumi_aws as aws
from osgym_infra.components.common import check_every_resource

check_every_resource()
rule = aws.ec2.SecurityGroupIngressArgs(protocol="tcp", from_port=22, to_port=22, cidr_blocks=["0.0.0.0/0"])
aws.ec2.SecurityGroup("open", ingress=[rule])
"""


def test_a_resource_that_breaks_the_policy_fails_the_preview(stack: Stack) -> None:
    """The check sees resources as the engine does, whatever program makes them."""
    (stack.folder / "infra").unlink()
    (stack.folder / "infra").mkdir()
    (stack.folder / "infra" / "__main__.py").write_text(OPEN)
    printed = stack.run("preview", ok=False)
    assert "SecurityGroup open: port 22 is open to 0.0.0.0/0" in printed
    assert "Traceback" not in printed
    assert "port 22" in stack.run("up", "--yes", "--skip-preview", ok=False)
    assert [r for r in stack.resources() if r["type"].startswith("aws:")] == []


def test_the_examples_can_be_previewed_without_an_account() -> None:
    """`make preview`: resources and price, from the files as they are."""
    done = subprocess.run(
        [sys.executable, preview.__file__], capture_output=True, text=True, timeout=2 * CALL_S, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    for text in ("Pulumi.example-aws.yaml", "Pulumi.example-gcp.yaml", "USD per replica-day", "to create"):
        assert text in done.stdout
    own = done.stdout.partition("Pulumi.example-ssh.yaml")[2]
    for text in ("2 replicas on 1 own machines", "destroy will remove from this machine", "to create"):
        assert text in own
