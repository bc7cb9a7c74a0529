"""Task templates over namespaces: a known set-up is restored by CRIU, as isolated as any other replica."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.host_process import HostProcess, running_host, start_host
from tests.support.template_episodes import SHIPPED, Api, assert_clones_begin_alike, assert_oracle_earns_all

from osgym_host.images.store import Image, default_data_dir
from osgym_host.runtimes.local.criu.installed import find_criu
from osgym_protocol.records import Record

CRIU = find_criu()
pytestmark = [
    pytest.mark.desktop,
    pytest.mark.skipif(not CRIU.usable, reason=f"missing: {CRIU.lacking}"),
]

SETTINGS = ("task_templates=on",)
MAKE_FOLDER = {"command": "mkdir ~/made && echo text > ~/made/file", "shell": True}
WITH_FOLDER = {
    **SHIPPED.task,
    "config": [*SHIPPED.task["config"], {"type": "execute", "parameters": MAKE_FOLDER}],
}
RENAME = "cd ~ && python3 -c \"import os; os.rename('made', 'renamed')\" && cat renamed/file"
ISOLATION = (
    "grep -c . /proc/net/unix > /dev/null; grep -h Seccomp /proc/self/status;"
    " readlink /proc/self/ns/user /proc/self/ns/net | sort | wc -l; hostname; id -un; sudo id -u;"
    " sudo ip link set lo mtu 1400 2>/dev/null || echo network closed;"
    " sudo mknod /tmp/device b 7 0 2>/dev/null || echo devices closed; cat /proc/self/cgroup | grep -c osgym"
)


def made_or_skip(api: Api, name: str, task: dict[str, Any] = SHIPPED.task) -> Record:
    """A first episode of the task, of which a template was taken."""
    made = api.create(task, name)
    if "rlimit" in str(made.meta["template"]):
        pytest.skip("missing: root with CAP_SYS_RESOURCE, which criu dump needs")
    assert made.meta["template"] == "made"
    return made


@pytest.fixture
def host(small_image: Image, tmp_path: Path) -> Iterator[HostProcess]:
    with running_host(f"ltpl-{os.getpid()}", log_dir=tmp_path, warm=1, settings=SETTINGS) as host:
        yield host


def test_a_clone_of_a_set_up_is_as_good_as_the_set_up(host: HostProcess) -> None:
    """The same first frame and score as the one that was set up, and as shut in."""
    with Api(host) as api:
        made = made_or_skip(api, "made")
        hits = assert_clones_begin_alike(api, made, SHIPPED.task)
        isolations = [api.run(record.meta, ISOLATION) for record in (made, *hits)]
        assert isolations[0] == isolations[1] == isolations[2]
        assert {"network closed", "devices closed"} <= set(isolations[0])
        for record in (made, hits[0]):
            assert_oracle_earns_all(api, record.meta, SHIPPED)
        for record in (made, *hits):
            api.close(record.meta)


def test_what_one_clone_writes_no_other_sees_and_the_agent_stays_watched(host: HostProcess) -> None:
    """Each has its own upper layer over the template's; an agent whose files a policy changed earns it 0."""
    with Api(host) as api:
        api.close(made_or_skip(api, "made", WITH_FOLDER).meta)
        one, two = (api.create(WITH_FOLDER, f"hit-{n}").meta for n in range(2))
        assert (one["template"], two["template"]) == ("hit", "hit")
        assert api.run(one, RENAME) == ["text"]  # which no folder of a lower layer can be
        api.run(one, "echo mine > ~/Desktop/own; rm /etc/hosts 2>/dev/null; true")
        assert api.run(two, "cat ~/Desktop/own 2>/dev/null || echo absent") == ["absent"]
        api.run(one, "sudo sh -c 'echo >> /usr/lib/osgym/session'")
        answer = api.http.post(f"/v1/episodes/{one['episode_id']}/evaluate", json={"lease": one["lease"]})
        assert (answer.json()["reward"], answer.json()["error_class"]) == (0.0, "policy"), answer.text
        for episode in (one, two):
            api.close(episode)


def test_a_clone_that_cannot_be_restored_is_set_up_instead(host: HostProcess) -> None:
    """Something of the template's files was changed: the episode begins all the same, from a set-up."""
    with Api(host) as api:
        api.close(made_or_skip(api, "made").meta)
        (point,) = (host.data_dir / "run" / host.instance / "points").iterdir()
        (point / "upper/home").touch()
        again = api.create(SHIPPED.task, "again").meta
        assert again["template"] == "made"
        (other,) = (host.data_dir / "run" / host.instance / "points").iterdir()
        assert other.name != point.name
        pages: Any = max(other.glob("images/pages-*.img"), key=lambda path: path.stat().st_size)
        stat = pages.stat()
        os.truncate(pages, stat.st_size // 2)
        last = api.create(SHIPPED.task, "last").meta
        assert last["template"].startswith("no (")
        for episode in (again, last):
            api.close(episode)


def test_nothing_of_a_template_outlives_a_killed_host_agent(small_image: Image, tmp_path: Path) -> None:
    """kill -9: the processes of clones end, and the next agent removes the template's files."""
    instance = f"ltplk-{os.getpid()}"
    points = default_data_dir() / "run" / instance / "points"
    first = start_host(instance, log_dir=tmp_path, warm=1, settings=SETTINGS)
    try:
        with Api(first) as api:
            api.close(made_or_skip(api, "made").meta)
            assert api.create(SHIPPED.task, "hit").meta["template"] == "hit"
            assert list(points.iterdir())
    finally:
        first.process.kill()
        first.process.wait(10)
    with running_host(instance, log_dir=tmp_path, warm=1, settings=SETTINGS) as second, Api(second) as api:
        assert not points.exists()
        anew = api.create(SHIPPED.task, "anew").meta
        assert anew["template"] == "made"
        api.close(anew)
    first.assert_nothing_left()
