"""Clients that misbehave, in plain HTTP without the SDK, and the answers of the service."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import time
from collections.abc import Awaitable, Callable
from typing import Any

import httpx

from benchmarks.chaos.schedule import Kind
from benchmarks.chaos.stage import CLEAN_WAIT_S, Impact, NoVictim, Stage
from osgym_protocol.records import RecordDecoder

DEAD_TTL_S = 2.0
FLOOD_CONNECTIONS, FLOOD_CREATES, FLOOD_S = 200, 60, 4.0
PATIENCE_S = 60.0


def _records(data: bytes) -> list[dict[str, Any]]:
    return [record.meta for record in RecordDecoder().feed(data)]


async def _create(http: httpx.AsyncClient, **fields: Any) -> dict[str, Any]:
    """Create an episode.

    Raises:
        NoVictim: The service has no room for it now.
    """
    request = {"request_id": secrets.token_hex(8), "task": None, "wait_s": 20, "lease_ttl_s": 20, **fields}
    try:
        answer = await http.post("/v1/episodes", json=request)
    except httpx.HTTPError as error:
        raise NoVictim(f"the host agent is away: {error}") from error
    if answer.status_code != 200:
        raise NoVictim(f"no room: {answer.status_code} {answer.text[:200]}")
    return {**_records(answer.content)[0], "request": request}


async def _close(http: httpx.AsyncClient, episode: dict[str, Any]) -> None:
    with contextlib.suppress(httpx.HTTPError):
        headers = {"OSGym-Lease": episode["lease"]}
        await http.request("DELETE", f"/v1/episodes/{episode['episode_id']}", headers=headers)


async def _dies(stage: Stage, http: httpx.AsyncClient, impact: Impact) -> None:
    """Take a lease and a step, and vanish."""
    episode = await _create(http, lease_ttl_s=DEAD_TTL_S)
    await http.post(f"/v1/episodes/{episode['episode_id']}/step", json=_step(episode, 1))
    impact.replica_id = episode["replica_id"]
    await stage.until_gone(impact, time.monotonic())
    impact.clean_s = None if impact.clean_s is None else impact.clean_s
    gone, began = stage.events.when(impact.replica_id, "gone"), stage.began + impact.at_s
    impact.noticed_s = None
    if gone is not None:
        impact.clean_s = max(0.0, gone - max(began, stage.events.when(impact.replica_id, "leased") or began))


def _step(episode: dict[str, Any], seq: int, **fields: Any) -> dict[str, Any]:
    step = {"lease": episode["lease"], "seq": seq, "actions": [{"op": "move", "x": 5 + seq, "y": 5}]}
    return {**step, "settle": {"policy": "fixed", "pause_ms": 0}, "observe": {"format": "none"}, **fields}


async def _floods(stage: Stage, http: httpx.AsyncClient, impact: Impact) -> None:
    writers: list[asyncio.StreamWriter] = []

    async def half_open() -> None:
        with contextlib.suppress(OSError, TimeoutError):
            async with asyncio.timeout(FLOOD_S):
                _, writer = await asyncio.open_connection("127.0.0.1", stage.service.port)
                writers.append(writer)
                writer.write(b"POST /v1/episodes HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Le")

    async def create() -> None:
        request = {"request_id": secrets.token_hex(8), "task": None, "wait_s": 600, "lease_ttl_s": 1}
        with contextlib.suppress(httpx.HTTPError, TimeoutError):
            async with asyncio.timeout(FLOOD_S):
                await http.post("/v1/episodes", json=request)

    try:
        works = [half_open() for _ in range(FLOOD_CONNECTIONS)] + [create() for _ in range(FLOOD_CREATES)]
        await asyncio.gather(*works)
        await asyncio.sleep(1)
    finally:
        for writer in writers:
            writer.close()
    over_at = time.monotonic()
    async with httpx.AsyncClient(base_url=stage.service.url, timeout=PATIENCE_S) as fresh:
        while time.monotonic() - over_at < CLEAN_WAIT_S:
            with contextlib.suppress(httpx.HTTPError, ValueError, KeyError):
                answer = await fresh.get("/v1/host")
                if answer.status_code == 200 and answer.json()["capacity"]["waiting"] < FLOOD_CREATES // 2:
                    impact.clean_s = time.monotonic() - over_at
                    return
            await asyncio.sleep(0.05)
    impact.wrong.append("the host agent does not serve after a flood")


async def _repeats(stage: Stage, http: httpx.AsyncClient, impact: Impact) -> None:
    """Send every request at least twice, at once and later; nothing may be done again."""
    episode = await _create(http)
    path = f"/v1/episodes/{episode['episode_id']}"
    try:
        twin = (await http.post("/v1/episodes", json=episode["request"])).content
        if _records(twin)[0]["episode_id"] != episode["episode_id"]:
            impact.wrong.append("a repeated create gave another episode")
        for seq in (1, 2):
            answers = await asyncio.gather(
                *(http.post(f"{path}/step", json=_step(episode, seq)) for _ in range(5))
            )
            codes = [answer.status_code for answer in answers]
            if any(code not in (200, 410) for code in codes):
                impact.wrong.append(f"a repeated step was answered {codes}")
            seen = [_records(answer.content)[0] for answer in answers if answer.status_code == 200]
            if len({(answer["step"], answer["observation"]["frame"]["hash"]) for answer in seen}) > 1:
                impact.wrong.append("a repeated step was answered differently")
        for seq in (1, 7):
            answer = await http.post(f"{path}/step", json=_step(episode, seq))
            if answer.status_code not in (409, 410):
                impact.wrong.append(f"step {seq} after step 2 was answered {answer.status_code}")
    finally:
        for _ in range(3):
            await _close(http, episode)


async def _steals(stage: Stage, http: httpx.AsyncClient, impact: Impact) -> None:
    """Call with leases of others, whose ids are known."""
    others = [attempt for attempt in stage.flights.flying() if attempt.episode_id]
    if not others:
        raise NoVictim("nobody to steal from")
    mine = await _create(http)
    try:
        for attempt in others:
            path = f"/v1/episodes/{attempt.episode_id}"
            for lease in (mine["lease"], "", attempt.episode_id, secrets.token_hex(16)):
                stolen = {**mine, "lease": lease}
                for seq in (1, 2, 3):
                    await _refused(impact, http.post(f"{path}/step", json=_step(stolen, seq)))
                await _refused(impact, http.post(f"{path}/evaluate", json={"lease": lease}))
                await _refused(impact, http.request("DELETE", path, headers={"OSGym-Lease": lease}))
        body = {"leases": [attempt.episode_id for attempt in others]}
        renewed = await http.post("/v1/leases/renew", json=body)
        if renewed.status_code != 200 or renewed.json()["renewed"]:
            impact.wrong.append(f"leases by the ids of episodes: {renewed.status_code} {renewed.text[:200]}")
    finally:
        await _close(http, mine)


async def _refused(impact: Impact, call: Awaitable[httpx.Response]) -> None:
    answer = await call
    if answer.status_code not in (400, 403, 404, 409, 410, 422):
        impact.wrong.append(f"a stolen call was answered {answer.status_code}: {answer.text[:200]}")
    elif answer.status_code != 422 and not answer.json().get("code"):
        impact.wrong.append(f"a refusal without a code: {answer.text[:200]}")


WAYS: dict[Kind, Callable[[Stage, httpx.AsyncClient, Impact], Awaitable[None]]] = {
    Kind.CLIENT_DIES: _dies,
    Kind.CLIENT_FLOODS: _floods,
    Kind.CLIENT_REPEATS: _repeats,
    Kind.CLIENT_STEALS: _steals,
}


async def misbehave(stage: Stage, kind: Kind, draw: float) -> Impact:
    """Be such a client.

    Raises:
        NoVictim: The host agent had no room for it, or was killed meanwhile.
    """
    impact = Impact(kind, stage.now_s())
    began = time.monotonic()
    limits = httpx.Limits(max_connections=None)
    try:
        async with httpx.AsyncClient(base_url=stage.service.url, timeout=PATIENCE_S, limits=limits) as http:
            await WAYS[kind](stage, http, impact)
    except (httpx.HTTPError, ValueError, KeyError) as error:
        if stage.restarted_at < began:
            impact.wrong.append(f"{type(error).__name__}: {error}")
        else:
            raise NoVictim("the host agent was killed under it") from error
    return impact
