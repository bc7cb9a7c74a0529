"""Episodes of clients that leave, forget or misbehave, spoken to the host agent in plain HTTP."""

from __future__ import annotations

import asyncio
import contextlib
import re
import resource
import secrets
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import httpx

from benchmarks.chaos.synthetic.faults import OF_CLIENTS, Case, Fault, Moment
from benchmarks.chaos.synthetic.play import POLL_S, task_of
from benchmarks.chaos.synthetic.players import Players
from benchmarks.chaos.synthetic.verdicts import Outcome, SeenEnd
from osgym_protocol.records import decode_record

AT_ONCE = 16
SHORT_TTL_S = 1.0
MOST_S = 60.0
CLICK = {"op": "click", "x": 1, "y": 2}
_GIVEN_UP = re.compile(
    r'^osgym_episodes_failed_to_open_total\{reason="client_gone"\} ([0-9.]+)', re.MULTILINE
)


async def play_clients(players: Players, cases: Sequence[Case]) -> None:
    """Play episodes of such clients, and judge each."""
    gate = asyncio.Semaphore(AT_ONCE)
    before = await _given_up(players)

    async def one(case: Case) -> None:
        async with gate:
            players.trajectories.cases[case.number] = case
            players.take(await _played(players, case))

    async with asyncio.TaskGroup() as group:
        for case in cases:
            group.create_task(one(case))
    wanted = before + sum(case.strikes[0].fault is Fault.GIVEN_UP for case in cases)
    async with asyncio.timeout(MOST_S):
        while await _given_up(players) < wanted:  # noqa: ASYNC110 (asked over HTTP)
            await asyncio.sleep(POLL_S)


async def play_made_way(players: Players, cases: Sequence[Case], replicas: int) -> None:
    """Let a worker of OSGym's API ask for more desktops than exist, so that those idle longest end."""
    http, url = players.trajectories.http, players.service.url
    body = {"task_config": task_of(cases[0]), "timeout": int(MOST_S)}
    seen_to = (await http.get(f"{url}/v1/events?after=0&wait_s=0")).json()["last_id"]
    for _ in range(replicas + len(cases)):
        (await http.post(f"{url}/reset", json=body)).raise_for_status()
    events = (await http.get(f"{url}/v1/events?after={seen_to}&wait_s=0")).json()["events"]
    ended = [event["episode_id"] for event in events if event.get("cause") == Fault.MADE_WAY.name.lower()]
    for case, episode_id in zip(cases, ended[: len(cases)], strict=True):
        players.trajectories.cases[case.number] = case
        players.take(_unscored(case, await players.end_of(episode_id)))
    (await http.post(f"{url}/shutdown", json={"vm_id": "all"})).raise_for_status()


async def play_without_descriptors(players: Players, cases: Sequence[Case]) -> None:
    """Run steps while the host agent can open no connection to a desktop.

    Nothing is tried again, which would fail in the same way. Each client has a connection that is open
    already.
    """
    async with contextlib.AsyncExitStack() as stack:
        https = [await stack.enter_async_context(httpx.AsyncClient(timeout=MOST_S)) for _ in cases]
        players_of = [
            replace(players, trajectories=replace(players.trajectories, http=http)) for http in https
        ]
        episodes = [await _create(one, case) for one, case in zip(players_of, cases, strict=True)]
        pairs = list(zip(players_of, episodes, strict=True))
        for one, episode in pairs:
            (await _step(one, episode, 1)).raise_for_status()
            await players.trajectories.control.send(Fault.CONNECTIONS_CUT, Moment.BETWEEN, **_of(episode))
        with _no_descriptors(players.service.pid):
            await asyncio.gather(*(_step(one, episode, 2) for one, episode in pairs))
    for case, episode in zip(cases, episodes, strict=True):
        players.trajectories.cases[case.number] = case
        path, body = f"{players.service.url}/v1/episodes/{episode['episode_id']}", {"lease": episode["lease"]}
        lost = await players.trajectories.http.post(f"{path}/evaluate", json=body)
        seen = await players.end_of(episode["episode_id"])
        players.take(_unscored(case, seen, "" if lost.status_code != 200 else f"scored: {lost.text}"))


@contextlib.contextmanager
def _no_descriptors(pid: int) -> Iterator[None]:
    bounds = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (3, bounds[1]))
    try:
        yield
    finally:
        resource.prlimit(pid, resource.RLIMIT_NOFILE, bounds)


async def _given_up(players: Players) -> int:
    metrics = (await players.trajectories.http.get(f"{players.service.url}/metrics")).text
    found = _GIVEN_UP.search(metrics)
    return int(float(found[1])) if found else 0


async def _played(players: Players, case: Case) -> Outcome:
    http, trajectories = players.trajectories.http, players.trajectories
    fault, moment = case.strikes[0].fault, case.strikes[0].moment
    if fault is Fault.GIVEN_UP:
        return await _given_up_create(players, case)
    episode = await _create(players, case, lease_ttl_s=SHORT_TTL_S if fault is Fault.NOT_CALLED else 60.0)
    path, lease = f"{players.service.url}/v1/episodes/{episode['episode_id']}", episode["lease"]
    stepped = await _step(players, episode, 1)
    if fault is not Fault.NOT_CALLED:  # on a busy machine this one's lease is over before its first step
        stepped.raise_for_status()
    if moment is Moment.SCORED:
        first = (await http.post(f"{path}/evaluate", json={"lease": lease})).json()
        await trajectories.control.send(fault, moment, **_of(episode))
        await trajectories.until_ended(episode["episode_id"])
        again = (await http.post(f"{path}/evaluate", json={"lease": lease})).json()
        return _scored(case, first, again)
    if fault is Fault.CLOSED:
        (await http.delete(path, headers={"OSGym-Lease": lease})).raise_for_status()
    await trajectories.until_ended(episode["episode_id"])
    lost = await http.post(f"{path}/evaluate", json={"lease": lease})
    seen = await players.end_of(episode["episode_id"])
    return _unscored(case, seen, "" if lost.status_code != 200 else f"scored: {lost.text}")


async def _given_up_create(players: Players, case: Case) -> Outcome:
    """Ask for an episode, and leave while its set-up runs."""
    control, number = players.trajectories.control, str(case.number)
    await control.send(Fault.FROZEN, Moment.SETUP, number=number, times=1)
    asking = asyncio.create_task(_create(players, case))
    while not asking.done() and not await control.send(Fault.NONE, Moment.SETUP, number=number, met=True):  # noqa: ASYNC110 (asked over a socket)
        await asyncio.sleep(POLL_S)
    asking.cancel()
    given = not isinstance((await asyncio.gather(asking, return_exceptions=True))[0], asyncio.CancelledError)
    return _unscored(case, SeenEnd(cause="it was given to its client" if given else ""))


async def _create(players: Players, case: Case, **fields: Any) -> dict[str, Any]:
    request = {"request_id": secrets.token_hex(8), "task": task_of(case), "wait_s": MOST_S, **fields}
    url = f"{players.service.url}/v1/episodes"
    answer = await players.trajectories.http.post(url, json=request)
    answer.raise_for_status()
    return dict(decode_record(answer.content).meta)


async def _step(players: Players, episode: dict[str, Any], seq: int) -> httpx.Response:
    body = {"lease": episode["lease"], "seq": seq, "actions": [CLICK]}
    path = f"{players.service.url}/v1/episodes/{episode['episode_id']}/step"
    return await players.trajectories.http.post(path, json=body)


def _of(episode: dict[str, Any]) -> dict[str, str]:
    return {"replica_id": episode["replica_id"]}


def _unscored(case: Case, seen: SeenEnd, note: str = "") -> Outcome:
    """Return the outcome of an episode that was never scored."""
    failure_class = seen.error_class or ("nobody" if not note else "scored")
    reason = OF_CLIENTS.get(case.strikes[0].fault, "")
    return Outcome(case.number, case.row, 1, (seen,), None, failure_class, False, False, reason, note)


def _scored(case: Case, first: dict[str, Any], again: dict[str, Any]) -> Outcome:
    """Return the outcome of an episode whose score was asked for twice."""
    note = "" if first == again else f"first {first}, then {again}"
    reward = again.get("reward") if first == again else None
    failure_class = None if reward is not None else str(again.get("error_class"))
    valid = bool(again.get("valid_for_training"))
    return Outcome(case.number, case.row, 1, (), reward, failure_class, "loss" in again, valid, "", note)
