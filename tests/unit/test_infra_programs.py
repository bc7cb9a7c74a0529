"""The programs of `pulumi up` at AWS and Google Cloud under Pulumi's mocks: from configuration to outputs."""

from __future__ import annotations

import json
import re
import runpy
import signal
import ssl
from pathlib import Path
from typing import Any

import pulumi
import pytest
import yaml
from cryptography import x509
from infra.stacks.fleet import begin, configured
from infra.stacks.fleet import run as make_fleet
from pulumi.runtime.config import set_all_config
from tests.support.fleet_configs import AWS, GCP, SSH
from tests.unit.test_infra_components import Recorder, blueprint, own_event_loops

from osgym_infra.components.common import fleet_name
from osgym_infra.config.parse import parse
from osgym_infra.config.providers import Provider
from osgym_infra.config.readers import NAMESPACE
from osgym_infra.errors import BadInput, CannotMeet
from osgym_infra.fleet.outputs import summary
from osgym_infra.hosts import tls
from osgym_infra.preview import run as preview

# The generated SDKs warn about names of their own when they are imported.
pytestmark = pytest.mark.filterwarnings("ignore:.*has been deprecated:DeprecationWarning")

ROOT = Path(__file__).resolve().parents[2]
both = pytest.mark.parametrize("base", [AWS, GCP], ids=["aws", "gcp"])


@pytest.fixture(autouse=True)
def catalogue(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Prices that were refreshed on this machine do not count here."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("OSGYM_CATALOGUE", raising=False)


def run(values: dict[str, object]) -> tuple[Recorder, dict[str, Any]]:
    """Runs the provider's program to its end; returns what it created and its outputs."""
    recorder = Recorder()
    outputs: dict[str, Any] = {}
    config = {f"{NAMESPACE}:{name}": str(value) for name, value in values.items()}

    @pulumi.runtime.test
    def program() -> pulumi.Output[Any]:
        return pulumi.Output.from_input(make_fleet(Provider(str(values["provider"])))).apply(outputs.update)

    with own_event_loops():
        pulumi.runtime.set_mocks(recorder, project="osgym", stack="prod", preview=False)
        set_all_config(config)
        try:
            program()
        finally:
            set_all_config({})
    return recorder, outputs


def bundle(recorder: Recorder) -> dict[str, str]:
    """The fleet's secret."""
    version = recorder.one("SecretVersion")
    kept = version.get("secretString") or version["secretData"]
    found: dict[str, str] = json.loads(kept["value"] if isinstance(kept, dict) else kept)
    return found


@both
def test_the_outputs_are_a_fleet(base: dict[str, object]) -> None:
    """Everything that fleet.json needs, as JSON, with the price and without the secret."""
    recorder, outputs = run({**base, "budget_usd_per_day": 5000})
    assert set(outputs) == {
        "schema_version", "stack", "provider", "region", "hosts", "token_secret", "ca", "discover",
        "capacity", "expected_usd_per_day", "expected_usd_per_replica_day", "notes", "price_sources",
    }  # fmt: skip
    assert (outputs["schema_version"], outputs["stack"]) == (1, "prod")
    assert outputs["provider"] == base["provider"]
    assert outputs["capacity"] == sum(host["capacity"] for host in outputs["hosts"])
    assert 0 < outputs["expected_usd_per_day"] <= 5000
    per_replica = outputs["expected_usd_per_day"] / 1024
    assert per_replica <= outputs["expected_usd_per_replica_day"] <= per_replica * 1.1
    assert outputs["token_secret"].startswith(f"{base['provider']}:")
    secret = bundle(recorder)
    text = json.dumps(outputs)
    assert json.loads(text) == outputs
    assert secret["token"] not in text
    assert "PRIVATE" not in text


@both
def test_hosts_show_a_certificate_that_the_output_vouches_for(base: dict[str, object]) -> None:
    """Signed by the authority in the outputs, for the name in the outputs, and for the host's own checks."""
    recorder, outputs = run(base)
    secret = bundle(recorder)
    (name,) = {host["server_name"] for host in outputs["hosts"]}
    assert name == "prod.osgym.internal"
    found = x509.load_pem_x509_certificate(secret["certificate"].encode())
    found.verify_directly_issued_by(x509.load_pem_x509_certificate(outputs["ca"].encode()))
    assert tls.is_still_valid(secret["certificate"], outputs["ca"], [name], found.not_valid_before_utc)


def handshake(secret: dict[str, str], ca: str, name: str, tmp_path: Path) -> None:
    """A TLS handshake between a host with this secret and a client that expects `name`."""
    for part in ("certificate", "key"):
        (tmp_path / part).write_text(secret[part])
    host = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    host.load_cert_chain(tmp_path / "certificate", tmp_path / "key")
    to_client, to_host = ssl.MemoryBIO(), ssl.MemoryBIO()
    server = host.wrap_bio(to_host, to_client, server_side=True)
    client = ssl.create_default_context(cadata=ca).wrap_bio(to_client, to_host, server_hostname=name)
    waiting = [client, server]
    for _ in range(8):
        for side in list(waiting):
            try:
                side.do_handshake()
                waiting.remove(side)
            except ssl.SSLWantReadError:
                pass
    assert not waiting


def test_a_client_tells_the_fleets_hosts_from_others(tmp_path: Path) -> None:
    """By the name in the outputs, whatever the address; another fleet's authority vouches for nobody here."""
    recorder, outputs = run(AWS)
    _, others = run(AWS)
    secret, name = bundle(recorder), outputs["hosts"][0]["server_name"]
    handshake(secret, outputs["ca"], name, tmp_path)
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(secret, outputs["ca"], "other.osgym.internal", tmp_path)
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(secret, others["ca"], name, tmp_path)


def test_a_preview_says_what_it_costs() -> None:
    """Hosts, room and price; own machines have no price."""
    cloud = summary(blueprint({**AWS, "host_type": "r8i.24xlarge", "market": "spot"}))
    assert re.search(
        r"1024 replicas on \d × r8i\.24xlarge \(spot, \d{3} replicas each, [\d.]+ USD/h each\)", cloud
    )
    assert re.search(r"expected: \d+\.\d\d USD a day, 0\.\d{4} USD per replica-day", cloud)
    assert re.search(r"on-demand instead: \d+\.\d\d USD a day \(\d × r8i\.24xlarge\)", cloud)
    own = summary(blueprint(dict(SSH)))
    first, *rest = own.splitlines()
    assert first == "1024 replicas on 2 own machines; room for 1024, as far as their memory goes"
    assert [line.split(" (")[0] for line in rest] == [
        "destroy will remove from 1 hosts behind ssh: everything below /var/lib/osgym",
        "destroy will remove from this machine: everything below /var/lib/osgym-fleet",
    ]


def test_names_of_stacks_stay_apart_and_short() -> None:
    """What is unique in a whole project carries the stack's name; long ones keep their difference."""
    assert fleet_name("prod") == "osgym-prod"
    long = [fleet_name(f"a-stack-with-a-very-long-name-{n}") for n in range(2)]
    assert long[0] != long[1]
    assert all(re.fullmatch(r"[a-z][a-z0-9-]{4,28}[a-z0-9]", f"{name}-host") for name in long)


@both
def test_two_runs_make_two_secrets(base: dict[str, object]) -> None:
    """Nothing of a secret is fixed in the program; the state keeps the first."""
    first, second = (bundle(run(base)[0]) for _ in range(2))
    assert all(first[name] != second[name] for name in first)


def test_own_machines_cost_what_is_paid_for_elsewhere() -> None:
    """An output that is there, and 0: the engine drops one that is nothing. Capacity is the hosts' own."""
    _, outputs = run({**SSH, "replicas": "8"})
    assert (outputs["expected_usd_per_day"], outputs["expected_usd_per_replica_day"]) == (0.0, 0.0)
    assert outputs["capacity"] == sum(host["capacity"] for host in outputs["hosts"]) == 1024


@both
def test_the_policy_is_applied_by_the_program_itself(
    base: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    """`begin` switches the check on before any resource exists."""
    seen: list[str] = []
    monkeypatch.setattr(pulumi.runtime, "register_resource_transform", lambda check: seen.append(check))
    run(base)
    assert len(seen) == 1


@pytest.mark.parametrize(
    ("values", "error", "field"),
    [
        ({"replica": "4"}, BadInput, "osgym:replica"),
        (GCP, BadInput, "osgym:provider"),
        ({"budget_usd_per_day": "1"}, CannotMeet, "osgym:budget_usd_per_day"),
        ({"host_type": "r8i.24xlarge", "replica_ram_gib": "4000"}, BadInput, "osgym:replica_ram_gib"),
    ],
)
def test_a_mistake_ends_before_any_resource(
    values: dict[str, object], error: type[BadInput | CannotMeet], field: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The key by its full name; the policy check was not even asked for."""
    monkeypatch.setattr("infra.stacks.fleet.configured", lambda: {**AWS, **values})
    monkeypatch.setattr("infra.stacks.fleet.check_every_resource", lambda: pytest.fail("too late"))
    with pytest.raises(error) as caught:
        begin(Provider("aws"))
    assert caught.value.field == field


def test_a_region_that_the_clouds_provider_does_not_have_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The key of the other namespace is read from the stack's configuration, and else the environment."""
    monkeypatch.setenv("AWS_REGION", "eu-west-1")
    with pytest.raises(BadInput) as caught:
        run(AWS)
    assert caught.value.field == "AWS_REGION"
    monkeypatch.setattr(
        "infra.stacks.fleet.pulumi_config.get_config_env", lambda: {"aws:region": "us-east-1"}
    )
    run(AWS)
    monkeypatch.setattr(
        "infra.stacks.fleet.pulumi_config.get_config_env", lambda: {"aws:region": "eu-west-2"}
    )
    with pytest.raises(BadInput) as caught:
        run(AWS)
    assert caught.value.field == "aws:region"


@pytest.mark.parametrize(
    ("values", "what"),
    [
        (SSH, "the host local needs root"),
        ({**SSH, "hosts": '["root@10.0.0.5"]', "replicas": "8"}, ""),
        ({k: v for k, v in AWS.items() if not k.startswith("image_")}, "baking the image needs root"),
    ],
)
def test_a_preview_says_what_will_need_root(
    values: dict[str, object], what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To who is not let in without a password; an update refuses by itself, where it comes to that."""
    warned: list[str] = []
    monkeypatch.setattr("infra.stacks.fleet.becomes_root", lambda: False)
    monkeypatch.setattr("infra.stacks.fleet.configured", lambda: values)
    monkeypatch.setattr("infra.stacks.fleet.check_every_resource", lambda: None)
    monkeypatch.setattr(pulumi.log, "warn", warned.append)
    monkeypatch.setattr(pulumi.log, "info", lambda _: None)
    for preview_only in (True, False):
        monkeypatch.setattr(pulumi.runtime, "is_dry_run", lambda said=preview_only: said)
        warned.clear()
        begin(Provider(str(values["provider"])))
        found = [line for line in warned if "needs root" in line]
        assert len(found) == (1 if what and preview_only else 0)
        assert all(what in line and "osgym fleet sudo" in line for line in found)


def test_an_unknown_provider_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    """`infra/__main__.py` raises what Pulumi prints without a traceback."""
    monkeypatch.setenv("PULUMI_CONFIG", json.dumps({"osgym:provider": "azure", "aws:region": "x"}))
    assert configured() == {"provider": "azure"}
    before = signal.getsignal(signal.SIGINT)
    monkeypatch.setattr(signal, "signal", lambda *_handler: before)  # of this process
    monkeypatch.syspath_prepend(ROOT / "infra")  # as the engine starts it
    with pytest.raises(pulumi.RunError, match="osgym:provider: 'azure' does not fit"):
        runpy.run_path(str(ROOT / "infra" / "__main__.py"))


def test_a_preview_has_a_stand_in_for_each_cloud(tmp_path: Path) -> None:
    """Its project is plain YAML, which names them."""
    preview.copy_project(tmp_path)
    project = yaml.safe_load((tmp_path / "Pulumi.yaml").read_text())
    named = {plugin["name"]: plugin["path"] for plugin in project["plugins"]["providers"]}
    for cloud in preview.CLOUDS:
        assert (Path(named[str(cloud)]) / "__main__.py").is_file()


@pytest.mark.parametrize("path", preview.EXAMPLES, ids=lambda path: path.name)
def test_the_examples_are_right(path: Path) -> None:
    """Every key of ours is known, and the provider's own region or project is the same."""
    config = yaml.safe_load(path.read_text())["config"]
    ours = {name.removeprefix("osgym:"): value for name, value in config.items() if name.startswith("osgym:")}
    found = parse(ours)
    match found.provider:
        case "aws":
            assert config["aws:region"] == found.region
        case "gcp":
            assert config["gcp:project"] == found.own["project"]
        case "ssh":
            assert set(config) == {f"osgym:{name}" for name in ours}


def test_the_real_project_names_no_fake() -> None:
    """Fakes belong in copies only."""
    text = (ROOT / "Pulumi.yaml").read_text()
    project = yaml.safe_load(text)
    assert project["main"] == "infra/"
    named = {plugin["name"] for plugin in project.get("plugins", {}).get("providers", [])}
    assert not named & set(preview.CLOUDS)
    assert "fake" not in text
