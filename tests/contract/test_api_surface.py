"""Host API v1: what the host shows, who may call, and requests that are no requests."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from tests.support.api_answers import error
from tests.support.fake_guest import PNG
from tests.support.fake_runtime import TASK, Service, record, running_service

from osgym_host.cli.openapi import openapi
from osgym_sdk import wire

ROOT = Path(__file__).parents[2]


async def test_unknown_paths_methods_and_bodies(service: Service) -> None:
    """One shape for all."""
    assert error(await service.http.get("/v1/nothing")) == (404, "not_found")
    assert error(await service.http.put("/v1/host"))[0] == 405
    answer = await service.http.post("/v1/episodes", content=b"{nope")
    assert error(answer) == (422, "bad_request")
    answer = await service.http.post("/v1/episodes", json={"request_id": "q", "wiat_s": 3})
    assert error(answer) == (422, "bad_request")
    assert "wiat_s" in answer.json()["message"]


async def test_the_host_shows_itself(service: Service) -> None:
    """Host, replicas, screenshot, events, metrics, health."""
    episode = await service.create()
    host = wire.HostState.from_dict((await service.http.get("/v1/host")).json())
    assert (host.runtime, host.capacity.leased, host.image.flavor) == ("fake", 1, "small")
    (row,) = [
        r for r in (await service.http.get("/v1/replicas")).json() if r["episode_id"] == episode["episode_id"]
    ]
    assert (row["state"], row["generation"]) == ("leased", episode["generation"])
    shot = await service.http.get(f"/v1/replicas/{episode['replica_id']}/screenshot")
    assert (shot.headers["content-type"], shot.content) == ("image/png", PNG)
    assert error(await service.http.get("/v1/replicas/nope/screenshot")) == (404, "not_found")
    events = (await service.http.get("/v1/events")).json()
    assert {"replica", "episode"} <= {e["kind"] for e in events["events"]}
    later = (await service.http.get(f"/v1/events?after={events['last_id']}&wait_s=0.05")).json()
    assert later["events"] == []
    record(await service.step(episode, 1, "wait()"))
    text = (await service.http.get("/metrics")).text
    assert 'osgym_replicas{state="leased"} 1.0' in text
    assert "osgym_steps_total 1.0" in text
    assert 'osgym_replicas_retired_total{reason="boot_failed"} 0.0' in text
    assert 'osgym_pool_blocked{by="ram"} 0.0' in text
    host = (await service.http.get("/v1/host")).json()
    assert host["load"]["disk_free_mib"] > 0
    free = next(line for line in text.splitlines() if line.startswith("osgym_disk_free_mib "))
    assert float(free.split()[1]) == pytest.approx(host["load"]["disk_free_mib"], rel=0.2)
    assert (await service.http.get("/v1/health")).json()["status"] == "ok"


@pytest.mark.parametrize(
    ("settings", "address", "headers", "path", "status"),
    [
        ({}, "127.0.0.1", {}, "/v1/host", 200),
        ({}, "::1", {}, "/v1/host", 200),
        ({}, "10.0.0.9", {}, "/v1/host", 403),
        ({}, "127.0.0.1", {"Origin": "http://evil.example"}, "/v1/host", 403),
        ({}, "127.0.0.1", {"Origin": "http://127.0.0.1:20000"}, "/v1/host", 200),
        ({}, "127.0.0.1", {"Origin": "http://127.0.0.1:20001"}, "/v1/host", 403),
        ({}, "127.0.0.1", {"Origin": "https://127.0.0.1:20000"}, "/v1/host", 403),
        ({}, "127.0.0.1", {"Origin": "null"}, "/v1/host", 403),
        ({}, "127.0.0.1", {"Host": "evil.example", "Origin": "http://evil.example"}, "/v1/host", 403),
        ({}, "127.0.0.1", {"Host": "evil.example"}, "/v1/host", 403),
        ({}, "127.0.0.1", {}, "https://127.0.0.1:20000/v1/host", 200),
        ({}, "127.0.0.1", {"Origin": "https://127.0.0.1:20000"}, "https://127.0.0.1:20000/v1/host", 200),
        ({}, "127.0.0.1", {"Origin": "http://127.0.0.1:20000"}, "https://127.0.0.1:20000/v1/host", 403),
        ({"token": "s"}, "127.0.0.1", {}, "/v1/host", 401),
        ({"token": "s"}, "10.0.0.9", {"Authorization": "Bearer x"}, "/v1/host", 401),
        ({"token": "s"}, "10.0.0.9", {"Authorization": "Bearer s"}, "/v1/host", 200),
        ({"token": "s"}, "10.0.0.9", {}, "/v1/health", 200),
        ({"token": "s"}, "10.0.0.9", {}, "/metrics", 401),
        ({"token": "s"}, "10.0.0.9", {}, "/openapi.json", 401),
        ({"token": "s"}, "10.0.0.9", {}, "/screenshot?vmId=1", 403),
        ({"token": "s"}, "10.0.0.9", {"Authorization": "Bearer s"}, "/screenshot?vmId=1", 400),
        ({"allowed_ips": ["10.0.0.0/8"]}, "10.0.0.9", {}, "/screenshot?vmId=1", 400),
        ({"allowed_ips": ["10.0.0.0/8"]}, "::ffff:10.0.0.9", {}, "/screenshot?vmId=1", 400),
        ({"allowed_ips": ["10.0.0.0/8"]}, "10.0.0.9", {}, "/v1/host", 403),
        ({"allowed_ips": ["10.0.0.0/8"]}, "11.0.0.9", {}, "/screenshot?vmId=1", 403),
        ({"allowed_ips": ["10.0.0.0/8"]}, "127.0.0.1", {}, "/screenshot?vmId=1", 403),
        ({}, "127.0.0.1", {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Dest": "image"}, "/v1/host", 403),
        ({}, "127.0.0.1", {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Dest": "document"}, "/v1/host", 200),
        ({}, "127.0.0.1", {"Sec-Fetch-Site": "same-origin"}, "/v1/host", 200),
        ({}, "::1", {"Host": "[::1]"}, "/v1/host", 200),
    ],
)
async def test_who_may_call(
    tmp_path: Path, settings: dict[str, Any], address: str, headers: dict[str, str], path: str, status: int
) -> None:
    """Token for v1, addresses for the OSGym API, this machine where nothing is configured, no web pages."""
    async with running_service(tmp_path, address=address, warm=0, **settings) as service:
        answer = await service.http.get(path, headers=headers)
        assert answer.status_code == status


_OSGYM_CALLS = [("POST", "/reset"), ("POST", "/step"), ("POST", "/shutdown"), ("GET", "/screenshot?vmId=1")]


@pytest.mark.parametrize(("method", "path"), _OSGYM_CALLS)
@pytest.mark.parametrize("token", [None, "s"])
async def test_an_allowed_address_lends_no_web_page_its_rights(
    tmp_path: Path, method: str, path: str, token: str | None
) -> None:
    """Calls with a foreign origin, a rebound name or from other sites are refused; programs are served."""
    options: dict[str, Any] = {"allowed_ips": ["10.0.0.0/8"], "allowed_hosts": ["Desk.example.com"]}
    async with running_service(tmp_path, address="10.0.0.9", warm=1, token=token, **options) as service:

        async def asked(**headers: str) -> tuple[int, str]:
            given = {"Content-Type": "text/plain", **{k.replace("_", "-"): v for k, v in headers.items()}}
            body = '{"task_config": null, "timeout": 60, "vm_id": 1, "action": "wait()"}'
            answer = await service.http.request(method, path, content=body, headers=given)
            return answer.status_code, answer.json().get("message", "") if answer.is_error else ""

        for headers in (
            {"Origin": "https://evil.example"},
            {"Origin": "null"},
            {"Sec_Fetch_Site": "cross-site", "Sec_Fetch_Dest": "image"},
            {"Host": "evil.example:20000"},
            {"Host": "evil.example:20000", "Origin": "http://evil.example:20000"},
            {"Host": "evil.local.example."},
            {"Host": "127.0.0.1.evil.example"},
        ):
            assert (await asked(**headers))[0] == 403, headers
        assert "OSGYM_ALLOWED_HOSTS=evil.example" in (await asked(Host="evil.example"))[1]
        assert service.agent.pool.view().leased == 0
        for headers in (
            {},
            {"Host": "10.1.2.3:20000"},
            {"Host": "[fd00::1]:20000"},
            {"Host": "desk.example.com:20000", "Origin": "http://desk.example.com:20000"},
            {"Host": "osgym-host"},
            {"Host": "ip-10-0-0-9.ec2.internal:20000"},
        ):
            assert (await asked(**headers))[0] != 403, headers


async def test_the_committed_openapi_is_true(service: Service) -> None:
    """`host_agent/openapi.json` is what the service says and the command prints; every call is in it."""
    schema = (await service.http.get("/openapi.json")).json()
    committed = json.loads((ROOT / "host_agent" / "openapi.json").read_text())
    assert schema == committed, "write it anew: osgym host openapi > host_agent/openapi.json"
    printed = CliRunner().invoke(openapi, catch_exceptions=False)
    assert json.loads(printed.output) == committed
    calls = {f"{method.upper()} {path}" for path, item in schema["paths"].items() for method in item}
    assert {
        "POST /v1/episodes",
        "POST /v1/episodes/{episode_id}/step",
        "POST /v1/steps",
        "POST /v1/episodes/{episode_id}/observe",
        "POST /v1/episodes/{episode_id}/final",
        "POST /v1/episodes/{episode_id}/evaluate",
        "POST /v1/episodes/{episode_id}/fork",
        "POST /v1/episodes/{episode_id}/checkpoint",
        "GET /v1/checkpoints",
        "DELETE /v1/checkpoints/{checkpoint_id}",
        "GET /v1/checkpoints/{checkpoint_id}/export",
        "POST /v1/checkpoints/import",
        "GET /v1/episodes/{episode_id}",
        "GET /v1/episodes/{episode_id}/trajectory",
        "DELETE /v1/episodes/{episode_id}",
        "DELETE /v1/requests/{request_id}",
        "POST /v1/leases/renew",
        "GET /v1/access",
        "GET /v1/host",
        "GET /v1/events",
        "POST /reset",
        "POST /step",
        "POST /shutdown",
        "GET /screenshot",
    } <= calls
    step = schema["paths"]["/v1/episodes/{episode_id}/step"]["post"]
    assert step["requestBody"]["content"]["application/json"]["schema"]["$ref"].endswith("StepRequest")
    assert wire.RECORDS_TYPE in step["responses"]["200"]["content"]


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("/reset", '{"task_config": {}, "timeout": %s}' % ("9" * 400), 400),
        ("/v1/episodes/x/step", '{"lease": "x", "seq": true, "actions": []}', 422),
        ("/v1/episodes/x/step", '{"lease": "x", "seq": "1", "actions": []}', 422),
        ("/v1/episodes/x/step", '{"lease": "\\ud800", "seq": 1, "actions": []}', 422),
        ("/v1/episodes", '{"request_id": "q", "wait_s": NaN}', 422),
        ("/v1/episodes", '{{"request_id": "q", "task": {}1{}}}'.format('{"a":' * 5000, "}" * 5000), 422),
    ],
)
async def test_strange_json_is_refused(service: Service, path: str, body: str, status: int) -> None:
    """Huge, half, nested and almost right: an answer of the API's own, and nothing was taken."""
    answer = await service.http.post(path, content=body, headers={"content-type": "application/json"})
    assert answer.status_code == status
    assert service.agent.pool.view().leased == 0


async def test_a_desktop_may_be_idle_for_as_long_as_anyone_likes(service: Service) -> None:
    """An idle time that no float can hold is as good as the longest."""
    body = '{{"task_config": {}, "timeout": {}}}'.format(json.dumps(TASK), "9" * 400)
    answer = await service.http.post("/reset", content=body)
    assert answer.status_code == 200
