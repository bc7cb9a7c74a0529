"""Host API v1: what each scope of a token may call; every route has one, and 403 says which is needed."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest
from tests.support.api_answers import error
from tests.support.fake_runtime import Served, running_service

from osgym_host.api import tokens
from osgym_host.api.security import OPEN_PATHS
from osgym_host.core.scopes import AccessScope, rule_for, scope_for
from osgym_host.settings import Settings
from osgym_sdk import AsyncClient, RateLimited

CHANGING = ("POST", "PUT", "DELETE", "PATCH")


async def test_every_call_has_a_scope(tmp_path: Path) -> None:
    """None falls through the table to `admin` unseen; what changes something is not for who may look only."""
    async with running_service(tmp_path) as service:
        paths = (await service.http.get("/openapi.json")).json()["paths"]
    routes = [
        (method.upper(), re.sub(r"\{[^}]+\}", "x1", path))
        for path, calls in paths.items()
        for method in calls
        if path not in OPEN_PATHS
    ]
    assert len(routes) > 40
    assert [call for call in routes if rule_for(*call) is None] == []
    observed = [method for method, path in routes if scope_for(method, path) is AccessScope.OBSERVE]
    assert not set(observed) & set(CHANGING)
    assert scope_for("GET", "/v1/something-new") is AccessScope.ADMIN
    assert scope_for("GET", "/v1/replicas/../drain") is AccessScope.ADMIN


async def test_each_scope_does_what_it_says(tmp_path: Path) -> None:
    """And nothing beyond it; the answer names what is needed, and who acted is named."""
    file = tmp_path / "tokens"
    given = {scope: tokens.add(file, f"my-{scope.word}", scope, 0) for scope in AccessScope}
    async with running_service(tmp_path, warm=1, token="all", tokens_file=file) as service:
        http = service.http

        async def call(who: str, method: str, path: str, **body: object) -> tuple[int, str]:
            headers = {"Authorization": f"Bearer {who}"}
            answer = await http.request(method, path, json=body or None, headers=headers)
            return answer.status_code, "" if answer.status_code < 400 else str(answer.json()["code"])

        new = {"request_id": "q", "task": None}
        observe, run, admin = (given[scope] for scope in AccessScope)
        assert await call(observe, "GET", "/v1/host") == (200, "")
        assert await call(observe, "POST", "/v1/episodes", **new) == (403, "forbidden")
        assert await call(run, "POST", "/v1/episodes", **new) == (200, "")
        (leased,) = [r for r in service.agent.view.replicas() if r["state"] == "leased"]
        act = f"/v1/replicas/{leased['replica_id']}/intervene"
        person = {"session": "s", "seq": 1, "actions": ["click(1,1)"]}
        assert await call(run, "POST", act, **person) == (403, "forbidden")
        assert await call(run, "POST", "/v1/drain") == (403, "forbidden")
        assert await call(admin, "POST", act, **person) == (200, "")
        assert await call(admin, "POST", "/v1/drain") == (200, "")
        assert await call("all", "DELETE", "/v1/drain") == (200, "")
        assert await call("none", "GET", "/v1/host") == (401, "unauthorized")
        assert await call("", "GET", "/v1/host") == (401, "unauthorized")
        for who, scope, name in ((run, "run", "my-run"), ("all", "admin", None)):
            said = await http.get("/v1/access", headers={"Authorization": f"Bearer {who}"})
            assert said.json() == {"scope": scope, "name": name}
        refused = await http.post("/v1/drain", headers={"Authorization": f"Bearer {run}"})
        assert refused.json()["details"] == {"needs": "admin", "has": "run"}
        events = (await http.get("/v1/events", headers={"Authorization": f"Bearer {observe}"})).json()
        assert [e["by"] for e in events["events"] if e["kind"] == "takeover"] == ["my-admin"]
        assert [e.get("by") for e in events["events"] if e["kind"] == "drain"] == ["my-admin", None]


async def test_a_token_that_calls_too_often_is_told_when(tmp_path: Path) -> None:
    """429 with `Retry-After`; other tokens are not affected."""
    file = tmp_path / "tokens"
    slow, fast = (tokens.add(file, name, AccessScope.OBSERVE, rate) for name, rate in (("a", 1), ("b", 0)))
    async with running_service(tmp_path, tokens_file=file) as service:
        answers = [
            await service.http.get("/v1/pool", headers={"Authorization": f"Bearer {slow}"}) for _ in range(7)
        ]
        assert [answer.status_code for answer in answers[:5]] == [200] * 5
        assert error(answers[-1]) == (429, "rate_limited")
        assert answers[-1].headers["retry-after"] == "1"
        other = await service.http.get("/v1/pool", headers={"Authorization": f"Bearer {fast}"})
        assert other.status_code == 200
        nobody = await service.http.get("/v1/pool")
        assert error(nobody) == (401, "unauthorized"), "a file of tokens alone asks everybody for one"


def test_off_loopback_a_file_of_tokens_is_enough(tmp_path: Path) -> None:
    """As a token is."""
    assert Settings(host="0.0.0.0", tokens_file=tmp_path / "tokens").tokens_file is not None
    with pytest.raises(ValueError, match="refusing to listen"):
        Settings(host="0.0.0.0")


async def test_a_client_waits_for_its_turn(tmp_path: Path) -> None:
    """Steps alone and in a batch go on at the token's rate; who may not wait that long is told."""
    file = tmp_path / "tokens"
    token = tokens.add(file, "slow", AccessScope.RUN, 4)
    with Served(tmp_path / "host", warm=2, max_replicas=2, tokens_file=file) as served:
        async with (
            AsyncClient(served.urls[0], token=token) as client,
            client.episode() as one,
            client.episode() as other,
        ):
            began = time.monotonic()
            for _ in range(12):
                await one.step([{"op": "move", "x": 5, "y": 5}])
            steps = [(one, [{"op": "move", "x": 6, "y": 5}]), (other, [{"op": "move", "x": 7, "y": 5}])]
            seen = [step async for step in client.step_many(steps)]
            assert len(seen) == 2
            for _ in range(12):
                await other.step([{"op": "move", "x": 5, "y": 5}])
            assert time.monotonic() - began > 1, "25 calls at 4 a second, 20 of them at once"
            assert (one.trajectory.steps[-1].meta.seq, other.trajectory.steps[-1].meta.seq) == (13, 13)
            with pytest.raises(RateLimited, match="slow may call 4 times a second"):
                for _ in range(60):
                    await one.step([{"op": "move", "x": 5, "y": 5}], timeout_s=0.05)
