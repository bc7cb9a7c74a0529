"""Office suite and browser that run before they are asked for: same frames, same scores, and no trace."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from PIL import ImageChops
from tests.support.host_process import HostProcess, running_host
from tests.support.template_episodes import Api, assert_oracle_earns_all, between_panels

from osgym_host.images.errors import ImageError
from osgym_host.images.store import ImageStore, default_data_dir
from osgym_host.tasks.shipped import ShippedTask, load_shipped

pytestmark = [pytest.mark.desktop, pytest.mark.full_image, pytest.mark.timeout(600)]

USED = {"libreoffice_calc": "libreoffice", "libreoffice_writer": "libreoffice", "chrome": "chromium"}
"""What the tasks of an application use."""
OVER_THEM = [entry for entry in load_shipped() if entry.name.partition("/")[0] in USED]
OTHER = next(entry for entry in load_shipped() if entry.name == "mousepad/write-note")
FILES = (
    "cd /; find home tmp var/tmp run dev/shm -xdev -printf '%p %y %m\\n' 2>/dev/null"
    " | grep -v -e osgym-guest.seq -e run/user/1000/at-spi -e run/user/1000/dconf | sort;"
    " stat -c '%n %Y %a' home/user home/user/.config"
)
PROCESSES = "ps -eo comm= | grep -v -e '^ps$' -e '^grep$' -e '^sh$' -e '^sort$' | sort"
OF_THE_SESSION = {"at-spi-bus-laun", "at-spi2-registr", "dbus-daemon", "dconf-service"}
"""Services that the first program of a session starts; they stay."""


def host_with(name: str, logs: pytest.TempPathFactory, *settings: str) -> Iterator[HostProcess]:
    """A host with the full image, or a skip that says what is missing."""
    try:
        ImageStore(default_data_dir()).resolve("full")
    except ImageError as error:
        pytest.skip(f"missing: {error}")
    folder = logs.mktemp(name)
    with running_host(
        f"{name}-{os.getpid()}", image="full", log_dir=folder, warm=1, settings=settings
    ) as running:
        yield running


@pytest.fixture(scope="module")
def warm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    """A host whose replicas have them running."""
    for host in host_with("warm", tmp_path_factory, "warm_apps=calc,chromium"):
        with Api(host) as api:
            yield api


@pytest.fixture(scope="module")
def cold(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    """A host as ever."""
    for host in host_with("cold", tmp_path_factory):
        with Api(host) as api:
            yield api


@pytest.mark.parametrize("entry", OVER_THEM, ids=lambda entry: entry.name)
def test_tasks_begin_and_score_alike(warm: Api, cold: Api, entry: ShippedTask) -> None:
    """The first frame is the same in every pixel, the oracle earns 1, and what is near it 0."""
    first = cold.create(entry.task, f"{entry.name}-cold")
    cold.close(first.meta)
    episode = warm.create(entry.task, f"{entry.name}-oracle")
    assert episode.meta["warm_apps"] == [USED[entry.name.partition("/")[0]]]
    box = ImageChops.difference(between_panels(first), between_panels(episode)).getbbox()
    assert box is None, f"the first frames differ in {box}"
    assert_oracle_earns_all(warm, episode.meta, entry)
    warm.close(episode.meta)
    near = warm.create(entry.task, f"{entry.name}-near")
    assert near.meta["warm_apps"]
    for seq, actions in enumerate(entry.near, 1):
        warm.step(near.meta, seq, list(actions))
    assert warm.score(near.meta) == 0.0
    warm.close(near.meta)


def test_what_a_task_does_not_use_leaves_no_trace(warm: Api, cold: Api) -> None:
    """Frames, files and processes are those of a desktop in which it never ran."""
    records = [api.create(OTHER.task, "other") for api in (cold, warm)]
    assert "warm_apps" not in records[0].meta
    assert records[1].meta["warm_apps"] == []
    box = ImageChops.difference(between_panels(records[0]), between_panels(records[1])).getbbox()
    assert box is None, f"the first frames differ in {box}"
    seen = [
        (api.run(record.meta, FILES), set(api.run(record.meta, PROCESSES)) - OF_THE_SESSION)
        for api, record in zip((cold, warm), records, strict=True)
    ]
    assert seen[0][0] == seen[1][0]
    assert seen[0][1] == seen[1][1]
    assert_oracle_earns_all(warm, records[1].meta, OTHER)
    for api, record in zip((cold, warm), records, strict=True):
        api.close(record.meta)


def test_a_program_that_is_closed_ends_and_starts_again(warm: Api) -> None:
    """As one that the set-up started: the office suite ends with its last window."""
    entry = next(entry for entry in OVER_THEM if entry.name.startswith("libreoffice_calc/"))
    episode = warm.create(entry.task, "closed").meta
    gone = (
        "wmctrl -c sales.xlsx; for n in $(seq 100); do pgrep soffice.bin >/dev/null || break; sleep 0.1; done"
    )
    assert warm.run(episode, f"{gone}; pgrep -c soffice.bin") == ["0"]
    again = "libreoffice --calc ~/Documents/sales.xlsx >/dev/null 2>&1 &"
    shown = "for n in $(seq 300); do wmctrl -l | grep -c sales.xlsx && break; sleep 0.1; done"
    assert warm.run(episode, f"{again} {shown}")[-1:] == ["1"]
    warm.close(episode)
