"""The provider's process as the engine sees it, without the engine: gRPC, readable errors, an end."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf import struct_pb2
from pulumi.provider.experimental.property_value import PropertyValue
from pulumi.runtime.proto import provider_pb2, provider_pb2_grpc, status_pb2

from osgym_infra.links.errors import CommandFailed
from osgym_infra.resources.provider import HOST, PartialFailure
from osgym_infra.resources.server import partial_failure_status
from osgym_infra.resources.values import wrapped

FOLDER = Path(__file__).resolve().parents[2] / "infra" / "provider"
URN = f"urn:pulumi:t::osgym::{HOST}::fleet-a"
KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIDxMUhWv/6bUWrDs6EYMvYCO2o4ZBIL9M4DpRyzYCdQy"
INPUTS = {
    "address": "127.0.0.1",
    "port": 9,
    "hostKey": KEY,
    "settings": {
        "OSGYM_AGENT_URI": "https://example.org/agent.tar",
        "OSGYM_AGENT_SHA256": "ab" * 32,
        "OSGYM_IMAGE_URI": "https://example.org/image.tar",
        "OSGYM_IMAGE_SHA256": "cd" * 32,
        "OSGYM_IMAGE_DIGEST": "ef" * 32,
    },
    "token": "token-of-the-process-test",
    "caCertificate": "PEM",
    "caKey": "PEM",
}


@pytest.fixture(scope="module")
def provider() -> Iterator[Any]:
    """Started as the engine does; the engine itself cannot be reached, which stops nothing."""
    process = subprocess.Popen(
        [sys.executable, str(FOLDER), "127.0.0.1:9"], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    port = int(process.stdout.readline())
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        yield provider_pb2_grpc.ResourceProviderStub(channel)
    process.send_signal(signal.SIGINT)
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(0.3)  # Ctrl-C in a terminal is the engine's to pass on
    process.terminate()
    process.wait(20)
    process.stdout.close()


def _struct(values: Mapping[str, Any]) -> struct_pb2.Struct:
    made: struct_pb2.Struct = PropertyValue.marshal_map({name: wrapped(v) for name, v in values.items()})
    return made


def test_it_speaks_with_the_engine(provider: Any) -> None:
    """Schema, check, diff; a wrong input is a failure by name."""
    schema = json.loads(provider.GetSchema(provider_pb2.GetSchemaRequest(), timeout=20).schema)
    assert schema["name"] == "osgym"
    checked = provider.Check(provider_pb2.CheckRequest(urn=URN, news=_struct(INPUTS)), timeout=20)
    assert list(checked.failures) == []
    wrong = provider.Check(
        provider_pb2.CheckRequest(urn=URN, news=_struct({**INPUTS, "port": 0})), timeout=20
    )
    assert [(f.property, f.reason) for f in wrong.failures] == [("port", "0 is not a TCP port")]
    diff = provider.Diff(
        provider_pb2.DiffRequest(urn=URN, id="a", olds=checked.inputs, news=checked.inputs), timeout=20
    )
    assert diff.changes == provider_pb2.DiffResponse.DIFF_NONE


def test_an_error_is_a_sentence(provider: Any) -> None:
    """Host and reason, no traceback; nothing that would put the host into the state."""
    checked = provider.Check(provider_pb2.CheckRequest(urn=URN, news=_struct(INPUTS)), timeout=20)
    with pytest.raises(grpc.RpcError) as caught:
        provider.Create(provider_pb2.CreateRequest(urn=URN, properties=checked.inputs), timeout=60)
    assert caught.value.details() == "host root@127.0.0.1:9: cannot be reached: Connection refused"
    assert dict(caught.value.trailing_metadata()) == {}


def test_a_look_at_a_host_that_is_away_is_an_answer(provider: Any) -> None:
    """So that one does not stop the refresh of the others."""
    checked = provider.Check(provider_pb2.CheckRequest(urn=URN, news=_struct(INPUTS)), timeout=20)
    request = provider_pb2.ReadRequest(urn=URN, id="a", inputs=checked.inputs, properties=checked.inputs)
    answer = provider.Read(request, timeout=60)
    assert answer.id == "a"
    assert answer.properties["serving"] is False
    assert "cannot be reached" in answer.properties["problem"]


def test_a_half_configured_host_goes_into_the_state() -> None:
    """As the engine wants to be told: id, properties, inputs and the reason."""
    cause = CommandFailed("a", "bootstrap.sh up agent", 1, "No space left on device", "agent")
    half = PartialFailure("a", {"serving": wrapped(False)}, {"address": wrapped("a")}, cause)
    status = status_pb2.Status.FromString(partial_failure_status(half))
    detail = provider_pb2.ErrorResourceInitFailed()
    assert status.details[0].Unpack(detail)
    assert (detail.id, detail.inputs["address"], detail.properties["serving"]) == ("a", "a", False)
    assert "step agent" in detail.reasons[0]
    assert "No space left" in detail.reasons[0]
