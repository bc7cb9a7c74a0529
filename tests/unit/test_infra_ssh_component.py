"""The component of own machines under Pulumi's mocks: which resources, with what, and what is put out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pulumi
import pytest
from pulumi.runtime import mocks as pulumi_mocks
from tests.support.fleet_configs import SSH, blueprint
from tests.unit.test_infra_components import own_event_loops

from osgym_infra.components.common import HostsArgs
from osgym_infra.fleet.boot import LOCAL_DATA
from osgym_infra.providers.ssh.hosts import ReplicaHosts
from osgym_infra.resources import host_inputs as inputs

pytestmark = pytest.mark.filterwarnings("ignore:.*has been deprecated:DeprecationWarning")

TOKEN = "a-token-that-stands-nowhere"
SECRET_MARK = "4dabf18193072939515e22adb298388d"
HOSTS = ["local", "ops@10.0.0.5", {"address": "10.0.0.6", "port": 2222, "max_replicas": 3}, "fd00::7"]


class Recorder(pulumi.runtime.Mocks):
    """Answers like our provider, and keeps what was asked for."""

    def __init__(self) -> None:
        self.resources: dict[str, dict[str, Any]] = {}

    def new_resource(self, args: pulumi_mocks.MockResourceArgs) -> tuple[str | None, dict[str, Any]]:
        """The inputs come back."""
        self.resources[args.name] = args.inputs
        made = {"token": TOKEN, "caKey": "a-key", "caCertificate": "a-certificate"}
        return f"{args.name}-id", {**args.inputs, **(made if args.typ.endswith(":FleetSecrets") else {})}

    def call(self, args: pulumi_mocks.MockCallArgs) -> dict[str, Any]:
        """Nothing is looked up."""
        raise AssertionError(args.token)


def deploy(**config: object) -> tuple[dict[str, dict[str, Any]], dict[str, Any]]:
    """Inputs of the resources by name, and the component's outputs."""
    recorder = Recorder()
    outputs: dict[str, Any] = {}
    plan = blueprint({**SSH, "replicas": 10, "hosts": HOSTS, **config})

    @pulumi.runtime.test
    def program() -> pulumi.Output[Any]:
        made = ReplicaHosts("fleet", HostsArgs(plan, "test"))
        found = pulumi.Output.all(hosts=made.hosts, token_secret=made.token_source, ca=made.ca)
        return found.apply(outputs.update)

    with own_event_loops():
        pulumi.runtime.set_mocks(recorder, preview=False)
        program()
    return recorder.resources, outputs


def test_one_resource_for_each_machine_that_the_provider_takes(tmp_path: Path) -> None:
    """With names that last, inputs that the provider's own check lets through, and this machine apart."""
    (tmp_path / "image.tar").touch()
    resources, outputs = deploy(image_uri=(tmp_path / "image.tar").as_uri())
    hosts = {name: r for name, r in resources.items() if "address" in r}
    # The order in which they are registered is chance.
    names = ["fleet-local", "fleet-10-0-0-5", "fleet-10-0-0-6-2222", "fleet-fd00-7"]
    assert sorted(hosts) == sorted(names)
    for given in hosts.values():
        clear = {
            name: value["value"] if isinstance(value, dict) and SECRET_MARK in value else value
            for name, value in given.items()
        }
        assert inputs.problems({**clear, "port": float(clear["port"])}) == {}
        assert clear["token"] == TOKEN
    assert hosts["fleet-local"]["settings"]["OSGYM_LISTEN"] == "127.0.0.1"
    assert hosts["fleet-local"]["settings"]["OSGYM_DATA"] == LOCAL_DATA
    assert hosts["fleet-local"]["settings"]["OSGYM_ALLOWED_CIDRS"] == ""
    assert "OSGYM_LISTEN" not in hosts["fleet-10-0-0-5"]["settings"]
    assert hosts["fleet-10-0-0-5"]["settings"]["OSGYM_ALLOWED_CIDRS"] == "10.0.0.0/8"
    assert (hosts["fleet-10-0-0-5"]["user"], hosts["fleet-10-0-0-6-2222"]["settings"]["OSGYM_MAX"]) == (
        "ops",
        "3",
    )
    assert [host["url"] for host in outputs["hosts"]] == [
        "https://127.0.0.1:20000",
        "https://10.0.0.5:20000",
        "https://10.0.0.6:20000",
        "https://[fd00::7]:20000",
    ]
    assert list(outputs["hosts"]) == [hosts[name]["entry"] for name in names]
    assert all(hosts[name].get("admits") is None for name in names), "it is the provider's to say"


def test_token_and_key_are_secret_inputs_and_no_outputs() -> None:
    """The engine encrypts what is marked; nothing that is put out holds either."""
    resources, outputs = deploy(rotation=3)
    assert resources["fleet-secrets"]["rotation"] == 3
    for given in resources.values():
        if "address" in given:
            assert given["token"].get(SECRET_MARK) and given["caKey"].get(SECRET_MARK)
            rest = {name: value for name, value in given.items() if name not in inputs.SECRETS}
            assert TOKEN not in json.dumps(rest)
    assert TOKEN not in json.dumps(outputs)
    assert outputs["ca"] == "a-certificate"
    assert outputs["token_secret"] == "file:/etc/osgym/token"
