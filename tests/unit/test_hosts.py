"""Own machines without any machine: inputs, drift, certificates, exports, and commands on this machine."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pulumi.provider.experimental import provider as api
from pulumi.provider.experimental.property_value import Computed, PropertyValue
from pulumi.runtime.rpc import UNKNOWN as UNKNOWN_TEXT
from tests.support.waiting import until

from osgym_infra.fleet.export import NothingToExport, export
from osgym_infra.hosts import tls
from osgym_infra.hosts.spec import (
    ArchiveSource,
    ObservedHost,
    as_outputs,
    digest_of,
    drift,
    host_settings,
    read_state,
    uploads,
)
from osgym_infra.links.errors import CommandFailed, CommandTimedOut
from osgym_infra.links.link import MOST_OUTPUT_BYTES, CollectedOutput, check, printable, write
from osgym_infra.links.local import LocalLink
from osgym_infra.resources import host_inputs as inputs
from osgym_infra.resources.provider import HOST, SECRETS, OsgymProvider
from osgym_infra.resources.values import plain, plain_all, wrapped

NOW = datetime(2026, 1, 1, tzinfo=UTC)
CA = tls.make_ca("lab", NOW)
TOKEN = "token-of-the-unit-tests"
URN = f"urn:pulumi:t::osgym::osgym:ssh:ReplicaHosts${HOST}::fleet-a"


@pytest.fixture
def values(tmp_path: Path) -> dict[str, Any]:
    """Right inputs of a host."""
    (tmp_path / "image.tar").touch()
    settings = {
        "OSGYM_AGENT_URI": "https://example.org/agent.tar",
        "OSGYM_AGENT_SHA256": "ab" * 32,
        "OSGYM_IMAGE_URI": (tmp_path / "image.tar").as_uri(),
        "OSGYM_IMAGE_SHA256": "cd" * 32,
        "OSGYM_IMAGE_DIGEST": "sha256:" + "ef" * 32,
    }
    return {
        "address": "10.0.0.5",
        "settings": settings,
        "token": TOKEN,
        "caCertificate": CA.certificate,
        "caKey": CA.key,
    }


@pytest.mark.parametrize(
    ("change", "field", "says"),
    [
        ({"adress": "x"}, "adress", "unknown input"),
        ({"address": ""}, "address", "must be a name, an IP address"),
        ({"address": "-oProxyCommand=x"}, "address", "must be a name, an IP address"),
        ({"port": 70000.0}, "port", "70000 is not a TCP port"),
        ({"hostKey": "ssh-ed25519 ???"}, "hostKey", "ssh-ed25519 AAAA"),
        ({"jump": {"address": "b", "port": 0.0}}, "jump", "port 0 is not a TCP port"),
        ({"jump": {"address": "b", "host": "c"}}, "jump", "unknown input host; valid inputs are"),
        ({"token": None}, "token", "is missing"),
        ({"token": 5.0}, "token", "is not of type str"),
        ({"settings": {}}, "settings", "OSGYM_AGENT_SHA256, OSGYM_AGENT_URI"),
    ],
)
def test_wrong_inputs_are_named(
    values: dict[str, Any], change: dict[str, Any], field: str, says: str
) -> None:
    """Before anything is done, and without quoting a secret."""
    whole = {name: value for name, value in (values | change).items() if value is not None}
    found = inputs.problems(whole)
    assert list(found) == [field]
    assert says in found[field]
    assert not inputs.problems(values)


def test_a_file_that_is_not_here_is_named_before_any_host_is_touched(values: dict[str, Any]) -> None:
    """In preview: `file://` means this machine."""
    values["settings"]["OSGYM_AGENT_URI"] = "file:///nowhere/agent.tar"
    assert inputs.problems(values) == {
        "settings": "OSGYM_AGENT_URI: there is no file /nowhere/agent.tar on this machine"
    }


def test_what_is_not_known_yet_is_not_judged(values: dict[str, Any]) -> None:
    """A token that a preview does not have yet passes, and counts as a change."""
    raw = {name: wrapped(value) for name, value in values.items()} | {"token": PropertyValue(Computed())}
    assert inputs.problems(plain_all(raw)) == {}
    assert list(inputs.changes(values, plain_all(raw))) == ["token"]
    # As the SDK hands it on from the engine; what is known is judged nevertheless.
    raw |= {"settings": PropertyValue(UNKNOWN_TEXT), "port": wrapped(0)}
    assert inputs.problems(plain_all(raw)) == {"port": "0 is not a TCP port"}


def test_only_another_address_is_another_host(values: dict[str, Any]) -> None:
    """All else is brought about in place."""
    for name, (kind, change) in inputs.INPUTS.items():
        new = {**values, name: {str: "other", float: 2222.0, dict: {"a": "b"}}[kind]}
        nothing = change is inputs.Change.NONE
        assert inputs.changes(values, new) == ({} if nothing else {name: change})
        assert nothing == (name == "maxUnavailable")
        assert (change is inputs.Change.NEW_HOST) == (name == "address")
    assert inputs.changes(values, {**values, "port": 22.0, "user": "root"}) == {}


def test_drift_names_all_that_is_not_as_it_shall_be(values: dict[str, Any]) -> None:
    """And nothing of what is."""
    spec = inputs.spec_of(values)
    good = ObservedHost(
        0, "debian", "12", "x86_64", "ab" * 8, "ef" * 32, digest_of(TOKEN),
        tls.issue(CA, ["10.0.0.5"], NOW).certificate, active=True, serving=True,
    )  # fmt: skip
    assert drift(good, spec, NOW) == []
    assert drift(ObservedHost(0, "debian", "12", "x86_64"), spec, NOW) == [
        "no agent",
        f"image {'ef' * 6} is missing",
        "another token",
        "certificate is missing, has another authority, or expires soon",
        "agent is not running",
    ]
    assert len(drift(good, spec, NOW + tls.HOST_LIFE - timedelta(days=30))) == 1


def test_what_is_here_is_uploaded_only_where_it_is_needed(values: dict[str, Any]) -> None:
    """A host that has the image needs no upload, this machine never; others get the file's place there."""
    spec = inputs.spec_of(values)
    nothing, has = (
        ObservedHost(0, "debian", "12", "x86_64"),
        ObservedHost(0, "debian", "12", "x86_64", "", "ef" * 32),
    )
    assert list(uploads(spec, nothing)) == [ArchiveSource.IMAGE]
    assert uploads(spec, has) == {}
    assert host_settings(spec)["OSGYM_IMAGE_URI"] == "file:///var/cache/osgym/image.tar"
    machines = {**values["settings"], "OSGYM_HOST_RUNTIME": "qemu"}
    spec = inputs.spec_of({**values, "settings": machines})
    assert list(uploads(spec, has)) == [ArchiveSource.IMAGE]  # perhaps with another disk of that image
    assert uploads(spec, dataclasses.replace(has, image_archive="cd" * 32)) == {}
    here = inputs.spec_of({**values, "address": "local"})
    assert uploads(here, nothing) == {}
    assert host_settings(here)["OSGYM_IMAGE_URI"] == values["settings"]["OSGYM_IMAGE_URI"]
    assert TOKEN not in repr(spec)
    assert CA.key not in repr(spec)


def test_certificates_hold_for_their_addresses_and_authority_only() -> None:
    """Not of another authority, not for another address, not shortly before the end."""
    made = tls.issue(CA, ["10.0.0.5", "host.example"], NOW).certificate
    assert tls.is_still_valid(made, CA.certificate, ["10.0.0.5"], NOW)
    assert tls.is_still_valid(made, CA.certificate, ["host.example"], NOW)
    assert not tls.is_still_valid(made, CA.certificate, ["10.0.0.6"], NOW)
    assert not tls.is_still_valid(made, tls.make_ca("lab", NOW).certificate, ["10.0.0.5"], NOW)
    assert not tls.is_still_valid(made, CA.certificate, ["10.0.0.5"], NOW + tls.HOST_LIFE - tls.RENEW_BEFORE)
    assert not tls.is_still_valid("nonsense", CA.certificate, [], NOW)
    assert not tls.is_still_valid(CA.certificate, CA.certificate, [], NOW)


_LEAVES = st.none() | st.booleans() | st.text() | st.floats(allow_nan=False)
_TREES = st.recursive(
    _LEAVES, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=8
)


@given(_TREES)
def test_values_come_back_as_they_went(value: Any) -> None:
    """To the engine and back."""
    assert plain(wrapped(value)) == value


@given(st.text())
def test_a_look_is_read_or_refused(output: str) -> None:
    """Whatever a host says, it is what the script prints, or a ValueError or KeyError."""
    with contextlib.suppress(ValueError, KeyError, TypeError):
        assert isinstance(read_state(output).user_id, int)


def test_output_is_bounded_and_steers_no_terminal() -> None:
    """The end is kept, line by line for whoever listens."""
    lines: list[str] = []
    collected = CollectedOutput(lines.append)
    collected.feed(b"one\ntw")
    collected.feed(b"o\n\x1b[31mred\n")
    assert lines == ["one", "two", "[31mred"]
    collected.feed(b"x" * 10 * MOST_OUTPUT_BYTES + b"end")
    assert len(collected.text) == MOST_OUTPUT_BYTES
    assert collected.text.endswith("end")
    assert printable("a\r\nb\tc\x07") == "a\nb\tc"


async def test_commands_on_this_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Exit code and output; no secret of our environment; a file arrives whole with its mode."""
    monkeypatch.setenv("PULUMI_CONFIG_PASSPHRASE", "a-passphrase")
    transport = LocalLink()
    transport._prefix = []
    done = await transport.run(["sh", "-c", "echo out; echo err >&2; exit 3"], timeout_s=10)
    assert (done.exit_code, sorted(done.output.split())) == (3, ["err", "out"])
    assert "a-passphrase" not in await check(transport, ["env"])
    with pytest.raises(CommandFailed, match="`sh -c 'exit 4'` ended with exit code 4"):
        await check(transport, ["sh", "-c", "exit 4"])
    assert (await transport.run(["cat"], timeout_s=10, stdin=b"given")).output == "given"
    owner = f"{os.getuid()}:{os.getgid()}"
    await write(transport, str(tmp_path / "a/b"), b"content", mode="600", owner=owner)
    assert (tmp_path / "a/b").read_bytes() == b"content"
    assert (tmp_path / "a/b").stat().st_mode & 0o777 == 0o600
    assert [path.name for path in (tmp_path / "a").iterdir()] == ["b"]


@pytest.mark.parametrize("how", ["timeout", "cancel"])
async def test_what_is_stopped_runs_on_nowhere(tmp_path: Path, how: str) -> None:
    """Neither the command nor its children, even if they are a session of their own making."""
    transport = LocalLink()
    transport._prefix = []
    script = f"sleep 1000 & echo $! > {tmp_path}/child; echo $$ > {tmp_path}/self; wait"
    running = asyncio.create_task(
        transport.run(["sh", "-c", script], timeout_s=0.5 if how == "timeout" else 60)
    )
    if how == "timeout":
        with pytest.raises(CommandTimedOut, match=r"longer than 0\.5 s"):
            await running
    else:
        await until(lambda: (tmp_path / "self").exists() and (tmp_path / "self").read_text())
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
    pids = [int((tmp_path / name).read_text()) for name in ("child", "self")]
    await until(lambda: not any(_runs(pid) for pid in pids))


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


async def _silent(urn: str, line: str) -> None:
    """Nobody listens."""


async def test_secrets_are_made_once_and_marked() -> None:
    """In a preview there are none; another `rotation` makes others, in their place."""
    provider = OsgymProvider({}, _silent)
    urn = f"urn:pulumi:t::osgym::{SECRETS}::fleet-secrets"
    given = {"name": wrapped("lab")}
    preview = await provider.create(api.CreateRequest(urn, given, 0, True))
    assert set(preview.properties) == {"name"}
    made = (await provider.create(api.CreateRequest(urn, given, 0, False))).properties
    assert {name for name, value in made.items() if value.is_secret} == {"token", "caKey"}
    assert len(plain(made["token"])) >= 43
    same = await provider.diff(api.DiffRequest(urn, "id", made, given, []))
    assert same.changes is False
    first = await provider.diff(api.DiffRequest(urn, "id", made, {**given, "rotation": wrapped(0)}, []))
    assert first.changes is False
    news = {**given, "rotation": wrapped(2)}
    rotated = await provider.diff(api.DiffRequest(urn, "id", made, news, []))
    assert (rotated.changes, rotated.replaces, rotated.diffs) == (True, [], ["rotation"])
    shown = await provider.update(api.UpdateRequest(urn, "id", made, news, 0, [], True))
    assert set(shown.properties) == {"name", "rotation"}
    fresh = (await provider.update(api.UpdateRequest(urn, "id", made, news, 0, [], False))).properties
    for name in ("token", "caKey", "caCertificate"):
        assert plain(fresh[name]) != plain(made[name])
    assert fresh["token"].is_secret and fresh["caKey"].is_secret


async def test_state_keeps_secrets_marked_and_sees_what_is_not_right(values: dict[str, Any]) -> None:
    """A problem of the last look, or a certificate about to end, is a difference by itself."""
    provider = OsgymProvider({"bootstrap.sh": b"x"}, _silent)
    checked = await provider.check(
        api.CheckRequest(URN, {}, {name: wrapped(value) for name, value in values.items()}, b"")
    )
    assert not checked.failures
    assert checked.inputs is not None
    shown = await provider.create(api.CreateRequest(URN, checked.inputs, 0, True))
    assert shown.properties["token"].is_secret
    assert shown.properties["caKey"].is_secret
    state = {**shown.properties, "serving": wrapped(True), "problem": wrapped("")}
    for change, fields in [
        ({}, []),
        ({"problem": wrapped("no agent"), "serving": wrapped(False)}, ["problem", "serving"]),
        (
            {"certificateEnds": wrapped((datetime.now(UTC) + timedelta(days=20)).isoformat())},
            ["certificateEnds"],
        ),
        ({"bootstrap": wrapped("older")}, ["bootstrap"]),
    ]:
        diff = await provider.diff(api.DiffRequest(URN, "10.0.0.5", state | change, checked.inputs, []))
        assert (diff.changes, sorted(diff.detailed_diff), diff.replaces) == (bool(fields), fields, [])


@pytest.mark.parametrize(
    ("admits", "capacity"), [(12.0, 12), (512.0, 512), (4096.0, 512), (0.0, 512), (None, 512)]
)
def test_capacity_is_what_the_agent_admits(admits: float | None, capacity: int) -> None:
    """Never more than was asked for; where it did not say, that."""
    entry = {"id": "a", "url": "https://a:20000", "capacity": 512}
    row = _resource("a", entry=entry, **({} if admits is None else {"admits": admits}))
    found = export({"deployment": {"resources": [row]}}, {"capacity": 512}).fleet
    assert (found["capacity"], found["hosts"][0]["capacity"]) == (capacity, capacity)


def test_what_the_agent_admits_is_read_from_a_look() -> None:
    """A host that says nothing of it, or something else, is a host whose agent did not say."""
    look = {"uid": "0", "system": "debian", "version": "12", "machine": "x86_64"}
    assert read_state(json.dumps({**look, "admits": "12"})).admits == 12
    assert as_outputs(read_state(json.dumps({**look, "admits": "12"})), "")["admits"] == 12
    for nothing in ({}, {"admits": ""}):
        assert read_state(json.dumps({**look, **nothing})).admits == 0
    with pytest.raises(ValueError, match="invalid literal"):
        read_state(json.dumps({**look, "admits": "many"}))


def _resource(name: str, **outputs: Any) -> dict[str, Any]:
    entry = {"id": name, "url": f"https://{name}:20000", "capacity": 2}
    return {"type": HOST, "id": name, "outputs": {"entry": entry, "serving": True, "problem": "", **outputs}}


def test_an_export_names_those_that_serve() -> None:
    """Also when the last up did not finish; with the token apart, decrypted."""
    mark = "4dabf18193072939515e22adb298388d"
    token = {mark: "1b47061264138c4ac30d75fd1eb44270", "plaintext": json.dumps(TOKEN)}
    half = {**_resource("b"), "initErrors": ["step agent failed"]}
    away = _resource("c", serving=False, problem="cannot be reached")
    secrets = {"type": SECRETS, "outputs": {"token": token, "caCertificate": "PEM"}}
    state = {"deployment": {"resources": [secrets, _resource("a"), half, away]}}
    found = export(state, {"destroy_removes": ["everything"]})
    assert "destroy_removes" not in found.fleet
    assert [host["id"] for host in found.fleet["hosts"]] == ["a"]
    assert "ssh" not in found.fleet["hosts"][0]
    assert found.left_out == {"b": "step agent failed", "c": "cannot be reached"}
    assert (found.fleet["capacity"], found.fleet["ca"], found.token) == (2, "PEM", TOKEN)
    assert TOKEN not in json.dumps(found.fleet)
    assert TOKEN not in repr(found)
    inputs = {"address": "10.0.0.6", "port": 2222.0, "user": "ops", "hostKey": "ssh-ed25519 AAAA"}
    entered = {**_resource("d"), "inputs": inputs}
    here = {**_resource("e"), "inputs": {"address": "local", "port": 22.0}}
    hosts = export({"deployment": {"resources": [secrets, entered, here]}}, {}).fleet["hosts"]
    assert hosts[0]["ssh"] == {
        "address": "10.0.0.6", "port": 2222, "user": "ops", "host_key": "ssh-ed25519 AAAA", "key_file": ""
    }  # fmt: skip
    assert hosts[1]["ssh"] == {"address": "local"}
    with pytest.raises(NothingToExport, match="b: step agent failed"):
        export({"deployment": {"resources": [secrets, half]}}, {})
    with pytest.raises(NothingToExport):
        export({}, {})
