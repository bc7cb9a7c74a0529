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
from tests.support.fleet_configs import AWS, GCP

from osgym_host.images.store import Image, ImageStore, default_data_dir
from osgym_infra.preview import run as preview

pytestmark = [
    pytest.mark.skipif(shutil.which("pulumi") is None, reason="the pulumi CLI is not on PATH"),
    pytest.mark.timeout(900),
]

CALL_S = 240
BASES: dict[str, dict[str, object]] = {
    "aws": {**AWS, "host_type": "r8i.24xlarge"},
    "gcp": {**GCP, "host_type": "n2-highmem-80"},
}
HOST = {"aws": "Instance", "gcp": "InstanceFromTemplate"}
SECRET_AT = {"aws": "aws:arn:aws:", "gcp": "gcp:osgym-test-token"}
TEMPLATE = {"aws": "LaunchTemplate", "gcp": "InstanceTemplate"}


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
    preview.copy_project(tmp_path)
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


@pytest.mark.parametrize("provider", ["aws", "gcp"])
def test_a_fleet_comes_up_stays_is_rolled_and_goes(stack: Stack, provider: str) -> None:
    """Preview, up, nothing to do, a changed template, hosts replaced on purpose, protection, destroy."""
    base = BASES[provider]
    stack.configure(base)
    planned = stack.steps()
    assert set(planned) == {"create"}
    assert stack.resources() == []

    stack.run("up", "--yes", "--skip-preview")
    first, secret = stack.outputs(), stack.bundle()
    assert len(first["hosts"]) == planned["create"][HOST[provider]] >= 2
    assert (first["schema_version"], first["provider"]) == (1, provider)
    assert first["token_secret"].startswith(SECRET_AT[provider])
    # The hosts' right to read it names it.
    rights = [
        r["inputs"] for r in stack.resources() if r["type"].endswith((":RolePolicy", ":SecretIamMember"))
    ]
    assert first["token_secret"].removeprefix(f"{provider}:").removesuffix("/versions/latest") in str(rights)
    assert first["ca"] == secret["ca"]
    assert first["capacity"] == sum(host["capacity"] for host in first["hosts"]) >= 1024
    assert first["expected_usd_per_day"] > 0 < first["expected_usd_per_replica_day"]
    parents = {r["urn"]: r.get("parent", "") for r in stack.resources()}
    hosts = [urn for urn in parents if f":{HOST[provider]}::" in urn]
    assert all("::osgym:" in parents[urn] for urn in hosts)
    assert_nowhere_in_clear(stack, secret)

    stack.run("up", "--yes", "--skip-preview", "--expect-no-changes")
    assert stack.bundle() == secret
    secret = _renewed(stack, provider, secret)

    changed = {**base, "agent_sha256": "12" * 32}
    stack.configure(changed)
    waiting = stack.steps()
    assert not any(HOST[provider] in kinds for op, kinds in waiting.items() if op != "same")
    assert any(TEMPLATE[provider] in kinds for op, kinds in waiting.items() if op != "same")

    stack.run("up", "--yes", "--skip-preview")
    stack.configure({**changed, "roll": True, "protect": True})
    assert stack.steps()["replace"][HOST[provider]] == len(first["hosts"])
    one = f"**::osgym-test-{first['hosts'][0]['id']}"
    stack.run("up", "--yes", "--skip-preview", "--target", one)
    assert stack.steps()["replace"][HOST[provider]] == len(first["hosts"]) - 1
    stack.run("up", "--yes", "--skip-preview")
    assert stack.bundle() == secret
    second = stack.outputs()
    assert [h["id"] for h in second["hosts"]] == [h["id"] for h in first["hosts"]]
    stack.run("up", "--yes", "--skip-preview", "--expect-no-changes")
    assert_nowhere_in_clear(stack, secret)

    assert "protect" in stack.run("destroy", "--yes", "--skip-preview", ok=False)
    stack.run("state", "unprotect", "--all", "--yes")
    stack.run("destroy", "--yes", "--skip-preview")
    assert [r for r in stack.resources() if not r["type"].startswith("pulumi:")] == []


NAMED = ("image_uri", "image_sha256", "image_digest", "agent_uri", "agent_sha256")


@pytest.mark.desktop
def test_what_hosts_fetch_is_made_once(
    stack: Stack, small_image: Image, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing in a preview; baked or found, packed and uploaded by the first up, nothing by the second; a
    change of the definition is seen in a preview; destroy removes the archives, and no image."""
    base = {name: value for name, value in BASES["aws"].items() if name not in NAMED}
    kept = tmp_path / "archives"
    stack.configure({**base, "image_name": "small", "runtime": "local", "archives": str(kept)})
    planned = stack.steps()["create"]
    assert (planned["ImageArchive"], planned["AgentArchive"], planned["BucketObjectv2"]) == (1, 1, 2)
    assert not kept.exists()

    stack.run("up", "--yes", "--skip-preview")
    names = {path.name for path in kept.iterdir()}
    assert sorted(name.partition("-")[0] for name in names) == ["agent", "small"]
    stored = [r["inputs"] for r in stack.resources() if r["type"].endswith(":BucketObjectv2")]
    assert {one["key"] for one in stored} == {f"osgym/test/{name}" for name in names}
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


def _renewed(stack: Stack, provider: str, old: Mapping[str, str]) -> dict[str, str]:
    """Token and certificate are made anew with the hosts that read them, as docs/fleet.md says."""
    both = ("**:SecretVersion::**", f"**:{HOST[provider]}::**")
    stack.run("up", "--yes", "--skip-preview", "--replace", both[0], "--replace", both[1])
    new = stack.bundle()
    assert (new["token"] != old["token"], stack.outputs()["ca"]) == (True, new["ca"])
    return new


WRONG: list[tuple[dict[str, object], str]] = [
    ({"replica": 5}, "osgym:replica: there is no such key. Did you mean replicas?"),
    ({"provider": "azure"}, "osgym:provider: 'azure' does not fit. aws | gcp | ssh"),
    ({"budget_usd_per_day": 1}, "osgym:budget_usd_per_day: 1024 replicas cost at least"),
    ({"replica_ram_gib": 9000}, "osgym:replica_ram_gib: a replica of 9000"),
    ({"host_type": "m7i.large"}, "osgym:host_type"),
    ({"region": "mars-north-1"}, "osgym:region: the catalogue has no prices for 'mars-north-1'"),
    ({"allowed_cidrs": '["0.0.0.0/0"]'}, "osgym:allowed_cidrs"),
    ({"bucket": "mine"}, "osgym:bucket: means nothing with image_uri and agent_uri"),
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
    for text in ("8 replicas on 1 own machines", "destroy will remove from this machine", "to create"):
        assert text in own
