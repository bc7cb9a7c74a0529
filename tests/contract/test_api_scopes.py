"""Host API v1 by tokens with a scope: every route has one, and each token gets as far as its own."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from starlette.routing import BaseRoute, Route
from tests.support.api_answers import error
from tests.support.fake_runtime import Served, Service, record, running_service

from osgym_host.core.rate_limit import RateLimit
from osgym_host.episodes.journal import RequestMark
from osgym_host.episodes.requests import KEEP
from osgym_host.http import dashboard, scopes
from osgym_host.http.access import OPEN_PATHS
from osgym_host.http.scopes import OPEN, ROUTES, needed_scope
from osgym_host.http.tokens import add_token, remove_token
from osgym_protocol.codes import TokenScope
from osgym_sdk import AuthError, Client, RateLimited, Timeouts


def bearer(token: str) -> dict[str, str]:
    """The header of a token."""
    return {"Authorization": f"Bearer {token}"}


def tokens_in(path: Path) -> dict[TokenScope, str]:
    """One token of each scope, named by it."""
    return {scope: add_token(path, scope, f"the-{scope}") for scope in TokenScope}


def routes_of(routes: Sequence[BaseRoute], prefix: str = "") -> Iterator[str]:
    """`METHOD /path` of each route, also of included routers (which new versions of FastAPI keep)."""
    for route in routes:
        included = getattr(route, "original_router", None)
        if included is not None:
            yield from routes_of(included.routes, prefix + vars(route)["include_context"].prefix)
            continue
        assert isinstance(route, Route), f"a kind of route that the rule does not know: {type(route)}"
        for method in sorted((route.methods or set()) - {"HEAD"}):
            yield f"{method} {prefix}{route.path}"


async def test_every_route_has_a_scope(service: Service) -> None:
    """No more and no less in the table than the service has; a route that is added needs a decision."""
    app = service.agent.app()
    found = set(routes_of(app.routes))
    described = {
        f"{method.upper()} {path}" for path, item in app.openapi()["paths"].items() for method in item
    }
    assert described <= found, "some routes are not seen"
    pages = {route for route in found if dashboard.is_part(route.split(" ")[1])}
    undecided = sorted(found - pages - set(ROUTES) - set(OPEN))
    assert undecided == [], "add them to osgym_host/api/scopes.py"
    assert sorted(set(ROUTES) - found) == [], "the service has no such routes"
    assert {route.split(" ")[1] for route in OPEN} == OPEN_PATHS
    for route, scope in ROUTES.items():
        method, path = route.split(" ")
        assert needed_scope(method, re.sub(r"\{[^}]*\}", "7", path)) is scope
    assert len(ROUTES) == len(scopes._OBSERVE) + len(scopes._RUN) + len(scopes._ADMIN), "one is there twice"


async def test_each_token_gets_as_far_as_its_scope(tmp_path: Path) -> None:
    """Over every route: 403 with what is needed below it, any other answer from it on."""
    path = tmp_path / "tokens"
    tokens = tokens_in(path)
    async with running_service(tmp_path, warm=0, token="s", tokens_file=path, token_calls_per_s=0) as service:
        for route, needed in ROUTES.items():
            if route.endswith("/tunnel"):  # never ends by itself; it is below
                continue
            method, template = route.split(" ")
            where = re.sub(r"\{[^}]*\}", "7", template)
            for scope, token in tokens.items():
                answer = await service.http.request(method, where, headers=bearer(token))
                said = answer.json() if "json" in answer.headers.get("content-type", "") else {}
                refused = said.get("code") == "insufficient_scope" if isinstance(said, dict) else False
                assert refused == (not scope.includes(needed)), (route, scope)
                if refused:
                    assert answer.status_code == 403
                    assert f"scope {needed}" in said["message"] and f"the-{scope}" in said["message"]
            assert (await service.http.request(method, where)).status_code in (401, 403)
        tunnel = await service.http.post(
            "/v1/episodes/7/tunnel?port=1", headers=bearer(tokens[TokenScope.OBSERVE])
        )
        assert error(tunnel) == (403, "insufficient_scope")
        assert tunnel.json()["details"] == {"needed": "run", "scope": "observe", "token": "the-observe"}


async def test_a_token_says_what_it_may(tmp_path: Path) -> None:
    """By its scope and name; the one token of the settings may do all and has no name."""
    path = tmp_path / "tokens"
    tokens = tokens_in(path)
    async with running_service(tmp_path, warm=0, token="s", tokens_file=path) as service:

        async def asked(token: str) -> Any:
            return (await service.http.get("/v1/access", headers=bearer(token))).json()

        for scope, token in tokens.items():
            assert await asked(token) == {"scope": scope, "token": f"the-{scope}"}
        assert await asked("s") == {"scope": "admin", "token": None}
        assert (await asked("wrong"))["code"] == "unauthorized"


async def test_a_file_alone_keeps_others_out(tmp_path: Path) -> None:
    """Also this machine, also when no token is left in it."""
    path = tmp_path / "tokens"
    token = add_token(path, TokenScope.OBSERVE, "me")
    remove_token(path, "me")
    async with running_service(tmp_path, host="0.0.0.0", warm=0, tokens_file=path) as service:
        for headers in ({}, bearer(token), bearer("")):
            assert error(await service.http.get("/v1/host", headers=headers)) == (401, "unauthorized")


async def test_events_name_the_token(tmp_path: Path) -> None:
    """Who drained the host stands in its event; the one token has no name to say."""
    path = tmp_path / "tokens"
    boss = bearer(tokens_in(path)[TokenScope.ADMIN])
    async with running_service(tmp_path, warm=0, token="s", tokens_file=path) as service:
        await service.http.post("/v1/drain", headers=boss)
        await service.http.delete("/v1/drain", headers=bearer("s"))
        events = (await service.http.get("/v1/events", headers=boss)).json()["events"]
        assert [one.get("by") for one in events if one["kind"] == "drain"] == ["the-admin", None]


async def test_who_asks_too_often_waits(tmp_path: Path) -> None:
    """429 with the time to wait; each token its own, and the one token none."""
    path = tmp_path / "tokens"
    tokens = tokens_in(path)
    limits: dict[str, Any] = {"token_calls_per_s": 0.1, "token_calls_burst": 3}
    async with running_service(tmp_path, warm=0, token="s", tokens_file=path, **limits) as service:
        observe, run = bearer(tokens[TokenScope.OBSERVE]), bearer(tokens[TokenScope.RUN])
        assert [(await service.http.get("/v1/host", headers=observe)).status_code for _ in range(3)] == [
            200
        ] * 3
        answer = await service.http.get("/v1/host", headers=observe)
        assert error(answer) == (429, "rate_limited")
        assert 1 <= int(answer.headers["retry-after"]) <= 10
        assert 0 < answer.json()["details"]["retry_after_s"] <= 10
        assert (await service.http.post("/step", headers=run, json={})).status_code != 429
        assert [(await service.http.get("/v1/host", headers=bearer("s"))).status_code for _ in range(9)] == [
            200
        ] * 9
        for _ in range(3):
            answer = await service.http.post("/step", headers=run, json={})
        assert (answer.status_code, answer.json()["code"]) == (429, "rate_limited")


async def test_nobody_is_told_to_wait_no_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is left of a wait may be less than a millisecond: it is rounded up, in both places."""
    monkeypatch.setattr(RateLimit, "wait_s", lambda *_: 0.0002)
    observe = bearer(tokens_in(tmp_path / "tokens")[TokenScope.OBSERVE])
    async with running_service(tmp_path, warm=0, token="s", tokens_file=tmp_path / "tokens") as service:
        answer = await service.http.get("/v1/host", headers=observe)
        assert error(answer) == (429, "rate_limited")
        assert (answer.headers["retry-after"], answer.json()["details"]["retry_after_s"]) == ("1", 0.001)


async def test_the_one_token_is_bounded_where_wanted(tmp_path: Path) -> None:
    """All who have it together; those with a scope are counted for themselves."""
    limits: dict[str, Any] = {"main_token_calls_per_s": 0.1, "token_calls_burst": 2}
    async with running_service(tmp_path, warm=0, token="s", **limits) as service:
        answers = [await service.http.get("/v1/host", headers=bearer("s")) for _ in range(3)]
        assert [answer.status_code for answer in answers] == [200, 200, 429]
        assert answers[2].json()["code"] == "rate_limited"
        assert 1 <= int(answers[2].headers["retry-after"]) <= 10


@pytest.mark.parametrize("path", ["/v1/host", "/step"])
async def test_wrong_tokens_are_bounded(tmp_path: Path, path: str) -> None:
    """429 with the time to wait, in both APIs; who has called before works on, and no token is no guess."""
    async with running_service(tmp_path, warm=0, token="s", wrong_tokens_per_min=3) as service:

        async def status(token: str) -> int:
            method = "POST" if path == "/step" else "GET"
            return (await service.http.request(method, path, headers=bearer(token), json={})).status_code

        assert await status("s") not in (401, 403, 429)
        guesses = [await status(f"guess-{number}") for number in range(5)]
        assert guesses == [401 if path == "/v1/host" else 403] * 3 + [429] * 2
        answer = await service.http.get("/v1/host", headers=bearer("another"))
        assert error(answer) == (429, "rate_limited")
        assert 1 <= int(answer.headers["retry-after"]) <= 20
        assert answer.json()["details"]["wrong_tokens"] is True
        assert await status("s") not in (401, 403, 429)
        assert error(await service.http.get("/v1/host")) == (401, "unauthorized")
        assert (await service.http.get("/v1/health")).status_code == 200


def test_a_training_script_waits_for_its_turn_and_reads_why_it_may_not(tmp_path: Path) -> None:
    """Over real HTTP by the SDK: an episode under a tight rate, and the error of a token that only looks."""
    path = tmp_path / "tokens"
    tokens = tokens_in(path)
    limits = {"token_calls_per_s": 20.0, "token_calls_burst": 1}
    with Served(tmp_path, warm=1, tokens_file=path, **limits) as served:
        with Client(served.urls[0], token=tokens[TokenScope.RUN]) as client, client.episode() as episode:
            for _ in range(5):
                episode.step("wait()")
            assert episode.observation.step == 5
        with Client(served.urls[0], token=tokens[TokenScope.OBSERVE]) as client:
            with pytest.raises(AuthError, match="scope run; the-observe has observe") as raised:
                client.episode().start()
            assert raised.value.code == "insufficient_scope"
            assert raised.value.details["needed"] == "run"
            assert client.host_states()
    with Served(
        tmp_path / "slow", warm=1, tokens_file=path, token_calls_per_s=0.01, token_calls_burst=1
    ) as served:
        quick = Timeouts(control_s=1.0)
        with Client(served.urls[0], token=tokens[TokenScope.OBSERVE], timeouts=quick) as client:
            states = [client.host_states() for _ in range(2)][-1]
            assert any(isinstance(one, RateLimited) for one in states.values())


async def test_a_request_id_is_bound_to_the_token_that_it_came_with(tmp_path: Path) -> None:
    """The same id with another token is another request: it neither returns nor undoes the first one."""
    path = tmp_path / "tokens"
    mine, theirs = bearer(add_token(path, TokenScope.RUN, "a")), bearer(add_token(path, TokenScope.RUN, "b"))
    async with running_service(tmp_path, warm=2, max_replicas=3, token="s", tokens_file=path) as service:

        async def create(headers: dict[str, str]) -> Any:
            body = {"request_id": "same", "task": None}
            return record(await service.http.post("/v1/episodes", json=body, headers=headers)).meta

        async def step(episode: Any) -> int:
            body = {"lease": episode["lease"], "seq": 1, "actions": ["wait()"]}
            where = f"/v1/episodes/{episode['episode_id']}/step"
            return (await service.http.post(where, json=body, headers=mine)).status_code

        first = await create(mine)
        for other in (await create(theirs), await create(bearer("s"))):
            assert other["episode_id"] != first["episode_id"] and other["lease"] != first["lease"]
        again = await create(mine)
        assert (again["episode_id"], again["lease"]) == (first["episode_id"], first["lease"])
        assert (await service.http.delete("/v1/requests/same", headers=theirs)).status_code == 204
        assert await step(first) == 200
        assert (await service.http.delete("/v1/requests/same", headers=mine)).status_code == 204
        assert await step(first) == 409


async def test_a_request_from_before_an_update_is_its_clients(tmp_path: Path) -> None:
    """A request stored by an older version has no token; any token can repeat or undo it."""
    path = tmp_path / "tokens"
    mine = bearer(add_token(path, TokenScope.RUN, "a"))
    async with running_service(tmp_path, warm=2, max_replicas=3, token="s", tokens_file=path) as service:
        body = {"request_id": "same", "task": None}

        async def create() -> Any:
            return record(await service.http.post("/v1/episodes", json=body, headers=mine)).meta

        first = await create()
        episode = service.agent.episodes.find(first["episode_id"])
        requests = service.agent._requests
        [(key, known)] = [(key, requests._known.get(key)) for key in list(requests._known._client_of)]
        requests._known.remove(key)
        requests.remember([(RequestMark("same", known.meaning.rpartition(":")[2]), episode)])
        again = await create()
        assert (again["episode_id"], again["lease"]) == (first["episode_id"], first["lease"])
        assert (await service.http.delete("/v1/requests/same", headers=mine)).status_code == 204
        assert episode.over is not None


async def test_nobody_makes_the_host_forget_what_others_undid(tmp_path: Path) -> None:
    """A token that undoes many requests does not evict what another token has undone."""
    path = tmp_path / "tokens"
    mine, flood = bearer(add_token(path, TokenScope.RUN, "a")), bearer(add_token(path, TokenScope.RUN, "b"))
    limits: dict[str, Any] = {"token_calls_per_s": 0}
    async with running_service(tmp_path, warm=1, token="s", tokens_file=path, **limits) as service:
        assert (await service.http.delete("/v1/requests/late", headers=mine)).status_code == 204
        for number in range(KEEP + 50):
            await service.http.delete(f"/v1/requests/{number}", headers=flood)
        answer = await service.http.post("/v1/episodes", json={"request_id": "late"}, headers=mine)
        assert error(answer) == (409, "cancelled")
