"""Host API v1: what people look at who hold no lease, and the page that shows it to them."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest
from tests.support.api_answers import error
from tests.support.fake_guest import PNG
from tests.support.fake_runtime import TASK, Service, record, running_service
from tests.support.waiting import until

PAGE = Path(__file__).parents[2] / "host_agent" / "osgym_host" / "http" / "dashboard" / "page"


async def played(service: Service, steps: int = 2) -> dict[str, Any]:
    """An episode of some steps with its reward, ended."""
    episode = await service.create(task=TASK)
    for seq in range(1, steps + 1):
        record(await service.step(episode, seq, f"click({seq}, 5)"))
    path = f"/v1/episodes/{episode['episode_id']}"
    assert (await service.http.post(f"{path}/evaluate", json={"lease": episode["lease"]})).status_code == 200
    assert (await service.http.delete(path, headers={"OSGym-Lease": episode["lease"]})).status_code == 204
    return episode


async def test_episodes_are_listed_living_ones_first(service: Service) -> None:
    """With reward and failure; the list says nothing of leases."""
    ended = await played(service)
    lost = await service.create()
    service.guest_of(lost).die()
    living = await service.create(task=TASK)
    await until(lambda: len(service.agent.episodes.active()) == 1)
    answer = await service.http.get("/v1/episodes")
    rows = answer.json()
    assert [row["episode_id"] for row in rows] == [e["episode_id"] for e in (living, lost, ended)]
    assert [row["state"] for row in rows] == ["active", "ended", "ended"]
    assert rows[2]["reward"] == 1 and rows[2]["task_id"] == "say-yes" and rows[2]["step"] == 2
    assert rows[2]["began_at"] < rows[2]["ended_at"] and rows[0]["ended_at"] is None
    assert rows[1]["error"]["code"] == "episode_lost" and rows[1]["reward"] is None
    assert not any(e["lease"] in answer.text for e in (ended, lost, living))
    assert len((await service.http.get("/v1/episodes?limit=1")).json()) == 1
    assert error(await service.http.get("/v1/episodes?limit=0"))[0] == 422


async def test_lines_are_read_on_from_where_they_ended(service: Service) -> None:
    """Also while the episode goes on; frames are asked for one by one."""
    episode = await service.create(task=TASK)
    path = f"/v1/episodes/{episode['episode_id']}"
    first = (await service.http.get(f"{path}/lines")).json()
    assert [line["kind"] for line in first["lines"]] == ["start"] and first["next"] == 1
    record(await service.step(episode, 1, "click(3, 5)"))
    more = (await service.http.get(f"{path}/lines?after=1")).json()
    assert [line["seq"] for line in more["lines"]] == [1] and more["next"] == 2
    assert more["lines"][0]["actions"][0]["x"] == 3
    assert (await service.http.get(f"{path}/lines?after=2")).json() == {"lines": [], "next": 2}
    shot = await service.http.get(f"{path}/frames/1")
    assert (shot.content, shot.headers["content-type"]) == (PNG, "image/png")
    assert "immutable" in shot.headers["cache-control"]
    assert error(await service.http.get(f"{path}/frames/2")) == (404, "not_found")
    assert error(await service.http.get(f"{path}/frames/99999999999999999999")) == (404, "not_found")
    assert error(await service.http.get("/v1/episodes/..%2f..%2fetc/lines"))[0] == 404
    assert error(await service.http.get("/v1/episodes/nope/lines")) == (404, "not_found")
    assert error(await service.http.get("/v1/episodes/nope/frames/0")) == (404, "not_found")


async def test_a_frame_that_is_a_link_is_none(service: Service, tmp_path: Path) -> None:
    """Whoever can write in the folder of trajectories shows no other file by it."""
    episode = await played(service, 1)
    (folder,) = (tmp_path / "data" / "trajectories").glob(episode["episode_id"])
    (tmp_path / "secret").write_text("secret")
    (folder / "000001.png").unlink()
    (folder / "000001.png").symlink_to(tmp_path / "secret")
    answer = await service.http.get(f"/v1/episodes/{episode['episode_id']}/frames/1")
    assert error(answer) == (404, "not_found")


async def test_who_looks_often_costs_one_look(service: Service) -> None:
    """A picture is as old as a quarter of a second, whoever asks; unchanged ones are not sent again."""
    episode = await service.create()
    path = f"/v1/replicas/{episode['replica_id']}/screenshot"
    agent = service.guest_of(episode).agent
    before = agent.looks
    answers = await asyncio.gather(*(service.http.get(f"{path}?width=320") for _ in range(20)))
    assert {answer.status_code for answer in answers} == {200}
    (etag,) = {answer.headers["etag"] for answer in answers}
    assert agent.looks == before + 1
    same = await service.http.get(f"{path}?width=320", headers={"If-None-Match": etag})
    assert (same.status_code, same.content, agent.looks) == (304, b"", before + 1)

    async def taken_again() -> bool:
        again = await service.http.get(f"{path}?width=320", headers={"If-None-Match": etag})
        assert (again.status_code, again.content) == (304, b"")
        return agent.looks > before + 1

    began = asyncio.get_running_loop().time()
    async with asyncio.timeout(5):
        while not await taken_again():  # noqa: ASYNC110  # another look changes nothing before its time
            await asyncio.sleep(0.02)
    assert agent.looks == before + 2
    assert asyncio.get_running_loop().time() - began < 3
    for width in (0, 31, 1921, "x"):
        assert error(await service.http.get(f"{path}?width={width}")) == (422, "bad_request")
    assert error(await service.http.get("/v1/replicas/nope/screenshot?width=320")) == (404, "not_found")


async def test_the_last_hour_in_samples(service: Service) -> None:
    """What was done since the sample before, and how the host stands."""
    await service.agent.backend.history.close()  # no samples by the clock beside those that are taken here
    await played(service, 3)
    await until(lambda: service.agent.view.retired())
    service.agent.backend.history.sample()
    service.agent.backend.history.sample()
    answer = (await service.http.get("/v1/history")).json()
    first, second = answer["samples"]
    assert (first["steps"], first["opened"], second["steps"]) == (3, 1, 0)
    assert first["step_ms"]["p95"] >= first["step_ms"]["p50"] > 0
    assert second["step_ms"] == {"p50": None, "p95": None}
    assert (answer["usd_per_hour"], first["scored"], second["scored"]) == (None, 1, 0)
    assert (first["accepted"], second["accepted"]) == (1, 0)
    assert first["ram_used_mib"] > 0 and sum(answer["retired"].values()) == 1


async def test_what_a_host_admits_is_said_with_its_numbers(service: Service) -> None:
    """The dashboard shows RAM, CPU and disk beside what each of them has room for."""
    found = (await service.http.get("/v1/pool")).json()["admission"]
    assert found["limit"] in {"none", "max_replicas", "ram", "cpu", "disk"}
    assert found["room"] + found["existing"] <= found["max_replicas"]
    assert found["cores"] >= 1 and found["cpu_per_replica"] >= 0
    assert {"ram_reserve_mib", "disk_reserve_mib", "disk_per_replica_mib"} <= found.keys()


async def test_events_of_one_desktop(service: Service) -> None:
    """Only its own, and the number to go on from is that of the newest of all."""
    name = (await played(service))["replica_id"]
    every = (await service.http.get("/v1/events")).json()
    found = (await service.http.get("/v1/events", params={"replica": name})).json()
    own = [event for event in every["events"] if event.get("replica_id") == name]
    assert own and found["events"][: len(own)] == own
    assert {event["replica_id"] for event in found["events"]} == {name}
    assert found["last_id"] >= every["last_id"]


async def test_a_price_is_said_where_there_is_one(tmp_path: Path) -> None:
    """The dashboard divides it by the episodes that were scored."""
    async with running_service(tmp_path, warm=0, usd_per_hour=1.25) as service:
        assert (await service.http.get("/v1/history")).json()["usd_per_hour"] == 1.25


async def test_the_page_is_open_and_says_nothing_of_the_host(tmp_path: Path) -> None:
    """It has no secret, so it needs no token; all that it shows does. Nothing but its own parts may run."""
    async with running_service(tmp_path, warm=0, token="s3cret", address="10.0.0.9") as service:
        page = await service.http.get("/ui")
        assert page.status_code == 200 and page.headers["content-type"].startswith("text/html")
        policy = page.headers["content-security-policy"]
        assert "default-src 'none'" in policy and "script-src 'self';" in policy
        assert "unsafe" not in policy and "frame-ancestors 'none'" in policy
        named = set(re.findall(r'(?:src|href)="(ui/[^"]+)"', page.text))
        assert named >= {"ui/app.js", "ui/app.css"}
        for part in PAGE.iterdir():
            answer = await service.http.get(f"/ui/{part.name}")
            assert (
                answer.content == part.read_bytes() and answer.headers["x-content-type-options"] == "nosniff"
            )
            repeated = await service.http.get(
                f"/ui/{part.name}", headers={"If-None-Match": answer.headers["etag"]}
            )
            assert (repeated.status_code, repeated.content) == (304, b"")
        assert service.agent.view.identity.host_id not in page.text
        for path in ("/v1/host", "/v1/episodes", "/v1/history", "/v1/replicas/r1/screenshot?width=320"):
            assert error(await service.http.get(path)) == (401, "unauthorized")
        for path in ("/ui/__init__.py", "/ui/..%2f__init__.py", "/ui/../v1/host", "/ui/x/y", "/uix"):
            assert (await service.http.get(path)).status_code in (401, 404)


@pytest.mark.parametrize("part", sorted(PAGE.glob("*.js")), ids=lambda part: part.name)
def test_scripts_ask_no_other_host_and_make_no_html(part: Path) -> None:
    """What a guest or a model wrote can only become text; the rest the page's policy holds."""
    text = part.read_text()
    assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|new Function", text)
    assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)", text)
    for name in re.findall(r'from "\./([^"]+)"', text):
        assert (PAGE / name).is_file()
