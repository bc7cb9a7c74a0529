"""Image and agent that a stack makes itself: components under Pulumi's mocks, the resource without a bake."""

from __future__ import annotations

import hashlib
import json
import shutil
import sys
from pathlib import Path
from typing import Any

import pulumi
import pytest
from pulumi.provider.experimental import provider as api
from pulumi.runtime import mocks as pulumi_mocks
from tests.support.cloud_requests import refusals
from tests.support.fleet_configs import AWS, GCP, SSH, blueprint
from tests.unit import test_infra_components as cloud

from osgym_host.images.definition import find_images_folder
from osgym_infra.archives import make
from osgym_infra.archives.make import AGENT, IMAGE
from osgym_infra.components.common import HostsArgs
from osgym_infra.components.golden import place_golden_image
from osgym_infra.errors import BadInput
from osgym_infra.fleet import policy
from osgym_infra.fleet.boot import STATUS
from osgym_infra.fleet.bootstrap import bootstrap_files
from osgym_infra.links.errors import CommandFailed, FleetHostError, Interrupted
from osgym_infra.resources import host_inputs
from osgym_infra.resources.archives import changed, problems
from osgym_infra.resources.provider import OsgymProvider
from osgym_infra.resources.values import plain_all, wrapped

pytestmark = pytest.mark.filterwarnings("ignore:.*has been deprecated:DeprecationWarning")

DEBIAN_OWNER = "136693071363"
NAMED = ("image_uri", "image_sha256", "image_digest", "agent_uri", "agent_sha256")
NONE_NAMED = [{k: v for k, v in base.items() if k not in NAMED} for base in (AWS, GCP, SSH)]
every = pytest.mark.parametrize("base", NONE_NAMED, ids=["aws", "gcp", "ssh"])
clouds = pytest.mark.parametrize("base", NONE_NAMED[:2], ids=["aws", "gcp"])
MADE = {IMAGE: ("/made/full-12.tar", "12" * 32, "ab" * 32), AGENT: ("/made/agent-34.tar", "34" * 32, "")}


class Recorder(cloud.Recorder):
    """Answers like our provider, too."""

    def new_resource(self, args: pulumi_mocks.MockResourceArgs) -> tuple[str | None, dict[str, Any]]:
        """An archive has been made."""
        found, made = super().new_resource(args)
        if args.typ in MADE:
            archive, sha256, digest = MADE[args.typ]
            made |= {"archive": archive, "sha256": sha256, "digest": digest, "size": 5}
        if args.typ.endswith(":FleetSecrets"):
            made |= {"token": "t", "caKey": "k", "caCertificate": "c"}
        return found, made


def deploy(values: dict[str, object]) -> tuple[Recorder, list[dict[str, Any]]]:
    """What the program's components make, and the hosts as they are put out."""
    recorder, plan = Recorder(), blueprint(values)
    hosts: list[dict[str, Any]] = []

    @pulumi.runtime.test
    def program() -> pulumi.Output[Any]:
        provider = plan.config.provider
        args = place_golden_image("fleet", HostsArgs(plan, "test"))
        made = provider.part("hosts").ReplicaHosts("fleet", args)
        return pulumi.Output.from_input(made.hosts).apply(hosts.extend)

    with cloud.own_event_loops():
        pulumi.runtime.set_mocks(recorder, preview=False)
        program()
    return recorder, hosts


def settings(recorder: Recorder) -> str:
    """What the first host is told."""
    if hosts := recorder.of("SshHost"):
        return "\n".join(f"{name}={value}" for name, value in hosts[0]["settings"].items())
    return cloud.script(recorder)


@every
def test_hosts_fetch_what_the_stack_made(base: dict[str, object]) -> None:
    """Image and agent by their digests, from where this provider's hosts can fetch them."""
    recorder, hosts = deploy(base)
    # A bucket's id is its name.
    place = {"aws": "s3://fleet-archives-id/osgym/test", "gcp": "gs://fleet-archives-id/osgym/test"}
    start = place.get(str(base["provider"]), "file:///made")
    told = settings(recorder)
    for line in (
        f"OSGYM_IMAGE_URI={start}/full-12.tar",
        f"OSGYM_IMAGE_SHA256={'12' * 32}",
        f"OSGYM_IMAGE_DIGEST={'ab' * 32}",
        f"OSGYM_AGENT_URI={start}/agent-34.tar",
        f"OSGYM_AGENT_SHA256={'34' * 32}",
    ):
        assert line in told
    assert {host["image_digest"] for host in hosts} == {"ab" * 32}
    image = recorder.one("ImageArchive")
    assert (image["flavor"], image["lock"], image["machines"]) == ("full", "", True)
    assert image["kvm"] is (base["provider"] != "ssh")
    assert problems(IMAGE, {k: v for k, v in image.items() if v is not None}) == {}
    agent = recorder.one("AgentArchive")
    assert agent["folder"] == image["folder"] == str(make.ROOT / "out/fleet/test")


@clouds
def test_the_bucket_of_the_stack_is_private_and_hosts_may_read_it(base: dict[str, object]) -> None:
    """No public access, encrypted objects with the archives' content; the hosts' role names the bucket."""
    recorder, _ = deploy(base)
    for resource in recorder.resources:
        assert policy.violations(resource.typ, resource.inputs) == [], resource.name
    bucket = recorder.one("Bucket")
    if base["provider"] == "aws":
        wall = recorder.one("BucketPublicAccessBlock")
        assert (wall["bucket"], wall["blockPublicPolicy"]) == ("fleet-archives-id", True)
        stored = recorder.of("BucketObjectv2")
        assert {one["serverSideEncryption"] for one in stored} == {"AES256"}
        assert "arn:aws:s3:::fleet-archives-id/osgym/test/*" in recorder.one("RolePolicy")["policy"]
        assert bucket["tags"]["owner"] == "lab"
    else:
        assert bucket["publicAccessPrevention"] == "enforced"
        assert bucket["uniformBucketLevelAccess"] is True
        stored = recorder.of("BucketObject")
        grants = recorder.of("BucketIAMMember")
        assert {one["bucket"] for one in grants} == {"fleet-archives-id"}
        (reads,) = (one for one in grants if one["role"] == "roles/storage.objectViewer")
        assert "/buckets/fleet-archives-id/objects/osgym/test/" in reads["condition"]["expression"]
        assert bucket["labels"]["owner"] == "lab"
    archives = [one["source"].path for one in stored if "source" in one]
    assert sorted(archives) == ["/made/agent-34.tar", "/made/full-12.tar"]


@clouds
def test_hosts_fetch_the_bootstrap_and_may_write_their_status_only(base: dict[str, object]) -> None:
    """One object, named and checked by its content; a right to write below one folder, and nowhere else."""
    recorder, _ = deploy(base)
    (stored,) = (
        one for one in recorder.of("BucketObjectv2") + recorder.of("BucketObject") if "content" in one
    )
    # Google's provider takes any content for a secret.
    content = stored["content"]["value"] if isinstance(stored["content"], dict) else stored["content"]
    sha256 = hashlib.sha256(content.encode()).hexdigest()
    key = stored.get("key") or stored["name"]
    assert key == f"osgym/test/bootstrap-{sha256[:16]}.json"
    files = {name: text.encode() for name, text in json.loads(content).items()}
    assert files == bootstrap_files()
    scheme = "s3" if base["provider"] == "aws" else "gs"
    told = settings(recorder)
    assert f"OSGYM_BOOTSTRAP_URI={scheme}://fleet-archives-id/{key}\n" in told
    assert f"OSGYM_BOOTSTRAP_SHA256={sha256}\n" in told
    assert f"OSGYM_STATUS_URI={scheme}://fleet-archives-id/osgym/test/{STATUS}\n" in told
    if scheme == "s3":
        statements = json.loads(recorder.one("RolePolicy")["policy"])["Statement"]
        writes = [one for one in statements if "s3:Put" in str(one["Action"])]
        assert [(one["Action"], one["Resource"]) for one in writes] == [
            ("s3:PutObject", f"arn:aws:s3:::fleet-archives-id/osgym/test/{STATUS}*")
        ]
    else:
        (grant,) = (one for one in recorder.of("BucketIAMMember") if one["role"].endswith("objectUser"))
        unknown = {**grant, "condition": {**grant["condition"], "expression": None}}  # as in a preview
        assert refusals("gcp:storage/bucketIAMMember:BucketIAMMember", unknown) == []
        assert grant["condition"]["expression"] == (
            f'resource.name.startsWith("projects/_/buckets/fleet-archives-id/objects/osgym/test/{STATUS}")'
        )


@clouds
@pytest.mark.parametrize("own", [True, False], ids=["own", "none"])
def test_a_host_image_of_packers_is_found(
    base: dict[str, object], own: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The newest of the account's own by its tag, and plain Debian as long as there is none."""
    asked: list[dict[str, Any]] = []

    def call(made: Recorder, args: pulumi_mocks.MockCallArgs) -> dict[str, Any]:
        if not args.token.endswith((":getAmi", ":getAmiIds", ":getImages")):
            return cloud.Recorder.call(made, args)
        asked.append(args.args)
        links = {"new": "2026-02-01T00:00:00", "old": "2026-01-01T00:00:00"} if own else {}
        images = [{"selfLink": name, "creationTimestamp": made} for name, made in links.items()]
        return {"id": "ami-debian", "ids": [*links], "images": images, **args.args}

    monkeypatch.setattr(Recorder, "call", call)
    recorder, _ = deploy({**base, "host_image": "auto"})
    if base["provider"] == "aws":
        found = recorder.of("LaunchTemplate")[0]["imageId"]
        # The engine gets both lookups at once and answers in any order.
        owners = {"osgym-digest" in json.dumps(one): one["owners"] for one in asked}
        assert owners == {True: ["self"], False: [DEBIAN_OWNER]}
    else:
        found = recorder.of("InstanceTemplate")[0]["disks"][0]["sourceImage"]
    assert "osgym-digest" in json.dumps(asked)
    assert (found == "new") if own else ("debian" in found)


@clouds
def test_an_existing_bucket_is_used(base: dict[str, object]) -> None:
    """Then none is made, and hosts may read that one."""
    recorder, _ = deploy({**base, "bucket": "the-labs"})
    assert not recorder.of("Bucket")
    assert "://the-labs/osgym/test/full-12.tar" in settings(recorder)
    rights = [*recorder.of("RolePolicy"), *recorder.of("BucketIAMMember")]
    assert "the-labs" in json.dumps(rights)


@every
def test_what_is_named_is_not_made(base: dict[str, object]) -> None:
    """An image of the configuration beside an agent of this tree; with both named neither is made."""
    whole = {"aws": AWS, "gcp": GCP, "ssh": SSH}[str(base["provider"])]
    image = {name: whole[name] for name in NAMED if name.startswith("image")}
    recorder, hosts = deploy({**base, **image})
    assert not recorder.of("ImageArchive")
    assert len(recorder.of("AgentArchive")) == 1
    assert f"OSGYM_IMAGE_URI={image['image_uri']}" in settings(recorder)
    assert hosts[0]["image_digest"] == image["image_digest"]
    recorder, _ = deploy(whole)
    assert not recorder.of("AgentArchive")
    # A cloud's hosts always fetch the bootstrap.
    assert bool(recorder.of("Bucket")) == (base["provider"] != "ssh")


def test_hosts_take_the_settings(tmp_path: Path) -> None:
    """What own machines are told of archives made here passes the check of their resource."""
    for name in ("full-12.tar", "agent-34.tar"):
        (tmp_path / name).touch()
    recorder, _ = deploy({**NONE_NAMED[2], "runtime": "local", "archives": "kept", "image_lock": "/l"})
    assert recorder.one("ImageArchive")["folder"] == str(make.ROOT / "kept")
    assert recorder.one("ImageArchive")["lock"] == "/l"
    assert recorder.one("ImageArchive")["machines"] is False
    told = dict(recorder.of("SshHost")[0]["settings"])
    assert {name for name, value in told.items() if value} >= host_inputs.NEEDED_SETTINGS


# The resource itself.


def urn(kind: str) -> str:
    """Of an archive in a component."""
    return f"urn:pulumi:t::osgym::osgym:index:GoldenImage${kind}::fleet-part"


def provider() -> OsgymProvider:
    """Ours; nobody listens to what it says."""

    async def say(_: str, line: str) -> None:
        pass

    return OsgymProvider(bootstrap_files(), say)


async def checked(kind: str, values: dict[str, Any]) -> tuple[dict[str, Any], dict[str, str]]:
    """The inputs after the check, and what is wrong with them."""
    given = {name: wrapped(value) for name, value in values.items()}
    answer = await provider().check(api.CheckRequest(urn(kind), {}, given, b""))
    return plain_all(answer.inputs or {}), {f.property: f.reason for f in answer.failures or []}


async def difference(kind: str, old: dict[str, Any], new: dict[str, Any]) -> api.DiffResponse:
    """Between a state and inputs."""
    before, after = ({k: wrapped(v) for k, v in values.items()} for values in (old, new))
    return await provider().diff(api.DiffRequest(urn(kind), "x", before, after, []))


async def test_a_preview_shows_a_change_of_the_definition_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The digest of what the image is made from is an input; nothing is baked or packed to find out."""
    given = {"folder": str(tmp_path / "out"), "flavor": "small", "machines": False}
    first, wrong = await checked(IMAGE, given)
    assert wrong == {}
    (tmp_path / "small.tar").write_bytes(b"12345")
    state = {**first, "archive": str(tmp_path / "small.tar"), "size": 5, "sha256": "x", "digest": "y"}
    assert not (await difference(IMAGE, state, first)).changes

    vm, _ = await checked(IMAGE, {**given, "machines": True})
    assert vm["definition"] != first["definition"]
    folder = Path(shutil.copytree(find_images_folder(), tmp_path / "images"))
    monkeypatch.setenv("OSGYM_IMAGES_DIR", str(folder))
    monkeypatch.setenv("OSGYM_GUEST_DIR", str(make.ROOT / "guest_agent"))
    assert (await checked(IMAGE, given))[0] == first
    (folder / "provision" / "guest" / "99-more").write_text("true\n")
    second, _ = await checked(IMAGE, given)
    diff = await difference(IMAGE, state, second)
    assert (diff.changes, diff.diffs, diff.replaces) == (True, ["definition"], [])

    properties = {name: wrapped(value) for name, value in second.items()}
    preview = await provider().create(api.CreateRequest(urn(IMAGE), properties, 0, True))
    assert plain_all(preview.properties) == second
    old = {name: wrapped(value) for name, value in state.items()}
    request = api.UpdateRequest(urn(IMAGE), "x", old, properties, 0, [], True)
    assert plain_all((await provider().update(request)).properties) == second
    assert not (tmp_path / "out").exists()


async def test_a_machine_is_not_frozen_for_a_cloud_where_there_is_no_kvm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The preview says so and how to make one, unless it is there already; own machines may emulate."""
    given = {"folder": str(tmp_path), "flavor": "small", "machines": True, "kvm": True}
    monkeypatch.setattr(make, "KVM", tmp_path / "kvm")

    async def define(argv: list[str], *_: object, **__: object) -> str:
        assert "definition" in argv
        return "12" * 32

    monkeypatch.setattr(make, "_run", define)
    known, wrong = await checked(IMAGE, given)
    assert list(wrong) == ["kvm"]
    for part in ("osgym:runtime", "osgym image snapshot small", "osgym fleet pack --vm", "osgym:image_uri"):
        assert part in wrong["kvm"]
    assert (await checked(IMAGE, {**given, "kvm": False}))[1] == {}
    assert (await checked(IMAGE, {**given, "machines": False}))[1] == {}
    old, new = ({name: wrapped(value) for name, value in one.items()} for one in (known, given))
    answer = await provider().check(api.CheckRequest(urn(IMAGE), old, new, b""))
    assert not answer.failures
    monkeypatch.setenv("MAKE_PREVIEW", "1")
    assert (await checked(IMAGE, given))[1] == {}
    monkeypatch.delenv("MAKE_PREVIEW")
    (tmp_path / "kvm").touch()
    assert (await checked(IMAGE, given))[1] == {}

    # There is one, and no kernel comes up under it: the snapshot says so.
    async def run(argv: list[str], *_: object, **__: object) -> str:
        rows = [{"tagged": True, "reference": "small@desktop", "accel": "tcg"}]
        packed = {"path": "/x", "sha256": "s", "size_bytes": 1, "digest": "d"}
        return json.dumps(rows if "snapshots" in argv else packed)

    monkeypatch.setattr(make, "_run", run)
    with pytest.raises(FleetHostError, match=r"frozen without KVM.*osgym fleet pack --vm"):
        await make.make(IMAGE, given, lambda line: None)
    assert (await make.make(IMAGE, {**given, "kvm": False}, lambda line: None)).digest == "d"


async def test_wrong_inputs_of_an_archive_are_named(tmp_path: Path) -> None:
    """A flavor that nobody defined by the configuration's key, and what there is."""
    _, wrong = await checked(IMAGE, {"folder": str(tmp_path), "flavor": "tiny"})
    assert "osgym:image_name" in wrong["flavor"]
    assert "valid flavors: full, osworld, small" in wrong["flavor"]
    _, wrong = await checked(IMAGE, {"folder": str(tmp_path), "flavor": "small", "lock": "/nowhere"})
    assert "/nowhere cannot be read" in wrong["flavor"]
    assert set(problems(IMAGE, {"folder": "out", "flavour": "full"})) == {"folder", "flavour", "flavor"}
    assert set(problems(AGENT, {"folder": 5.0})) == {"folder"}


async def test_an_archive_that_is_gone_is_made_anew(tmp_path: Path) -> None:
    """Refresh drops it from the state; without one, the next `up` notices just so. Delete needs no file."""
    path = tmp_path / "agent-12.tar"
    path.write_bytes(b"12345")
    state = {"folder": str(tmp_path), "definition": "d", "archive": str(path), "size": 5, "sha256": "s"}
    properties = {name: wrapped(value) for name, value in state.items()}
    request = api.ReadRequest(urn(AGENT), "agent", properties, properties)
    assert (await provider().read(request)).resource_id == "agent"
    assert changed(state, {**state, "folder": "/elsewhere"}) == []
    path.write_bytes(b"1234")
    assert (await provider().read(request)).resource_id == ""
    assert changed(state, state) == ["archive"]
    await provider().delete(api.DeleteRequest(urn(AGENT), "agent", properties, 0))
    assert not path.exists()
    await provider().delete(api.DeleteRequest(urn(AGENT), "agent", properties, 0))


PACK = """import json, pathlib, sys, time
folder = pathlib.Path(sys.argv[sys.argv.index("--out") + 1])
def made():
    path = folder / "agent-%s.tar"
    path.write_text("packed")
    print(json.dumps({"path": str(path), "sha256": "s", "digest": "", "size_bytes": 6}))
%s
"""


async def test_the_former_archive_goes_when_there_is_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same file stays; another takes its place; a command that fails says so and leaves the former."""
    script = tmp_path / "pack.py"
    monkeypatch.setattr(make, "PACK", [sys.executable, str(script)])
    folder = tmp_path / "kept"
    given = {name: wrapped(v) for name, v in {"folder": str(folder), "definition": "d"}.items()}
    script.write_text(PACK % ("1", "made()"))
    made = await provider().create(api.CreateRequest(urn(AGENT), given, 0, False))
    assert made.resource_id == "agent"
    state = made.properties
    assert plain_all(state)["size"] == 6
    for content, files in (("1", ["agent-1.tar"]), ("2", ["agent-2.tar"])):
        script.write_text(PACK % (content, "made()"))
        request = api.UpdateRequest(urn(AGENT), "agent", state, given, 0, [], False)
        state = (await provider().update(request)).properties
        assert [path.name for path in folder.iterdir()] == files
    script.write_text(PACK % ("3", 'sys.exit("no space left")'))
    with pytest.raises(CommandFailed, match=r"(?s)step pack: .*--only agent.*no space left"):
        await provider().update(api.UpdateRequest(urn(AGENT), "agent", state, given, 0, [], False))
    assert [path.name for path in folder.iterdir()] == ["agent-2.tar"]
    stopped = provider()
    await stopped.cancel()
    with pytest.raises(Interrupted):
        await stopped.create(api.CreateRequest(urn(AGENT), given, 0, False))


@pytest.mark.parametrize(
    ("named", "change", "field"),
    [
        (("image_uri", "image_digest"), {}, "image_sha256"),
        (("image_uri", "image_sha256"), {}, "image_digest"),
        (("image_sha256",), {}, "image_sha256"),
        (("agent_uri",), {}, "agent_sha256"),
        (("agent_sha256",), {}, "agent_sha256"),
        (NAMED[:3], {"image_lock": "lock"}, "image_lock"),
        (NAMED, {"archives": "out"}, "archives"),
    ],
)
def test_half_a_name_is_refused_by_its_key(
    named: tuple[str, ...], change: dict[str, object], field: str
) -> None:
    """What hosts fetch is named whole or not at all."""
    values = {**NONE_NAMED[0], **{name: AWS[name] for name in named}, **change}
    with pytest.raises(BadInput) as refused:
        blueprint(values)
    assert refused.value.field == f"osgym:{field}"
