"""OSWorld's published task files on desktops of the image `osworld`: what doing nothing and each oracle earn.

`make test-osworld TASKS=OSWorld/evaluation_examples/examples`; the task files are not part of this project.
Played is each that `osgym task check` says runs here and fetches nothing: files that the host has count. Some
of those that fetch files are played with files made here (`tests/support/osworld_stand_ins.py`).
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from benchmarks.osworld_oracles import oracles
from tests.support.host_process import HostProcess, running_host
from tests.support.osworld_stand_ins import has_stand_in, stand_in

from osgym_cli.evals.jobs import NoTasks, find_task_files
from osgym_host.images.errors import ImageError
from osgym_host.images.store import ImageStore, default_data_dir
from osgym_host.tasks.needs import Needs, Verdict, needs_of, programs_of
from osgym_sdk import Client, Episode

pytestmark = [pytest.mark.desktop, pytest.mark.timeout(600)]

ORACLES = oracles()
INFEASIBLE = "infeasible"
WAIT_S = 300.0
ORACLE_S = 120.0


def published() -> dict[str, dict[str, Any]]:
    """The task files by domain and name; none when nobody says where they are."""
    folder = os.environ.get("OSGYM_OSWORLD_TASKS", "")
    try:
        paths = find_task_files([folder]) if folder else []
    except NoTasks:
        paths = []
    return {f"{path.parent.name}/{path.stem}": json.loads(path.read_bytes()) for path in paths}


def needs(image: str) -> dict[str, Needs]:
    """What each of them needs that this image and this host have not."""
    try:
        has_program = programs_of(ImageStore(default_data_dir()).resolve(image).rootfs)
    except ImageError:
        return {}
    cache = default_data_dir() / "cache" / "downloads"
    return {name: needs_of(task, has_program, cache) for name, task in TASKS.items()}


TASKS = published()
VERDICTS = {name: found.verdict for name, found in needs("osworld").items()}
HERE = sorted(name for name, verdict in VERDICTS.items() if verdict is Verdict.RUNS)
WITH_OTHER_FILES = sorted(
    name for name, verdict in VERDICTS.items() if verdict is Verdict.FETCHES and has_stand_in(TASKS[name])
)
PLAYED = [*HERE, *WITH_OTHER_FILES]

if not TASKS:
    pytest.skip("missing: OSGYM_OSWORLD_TASKS, a folder with OSWorld's task files", allow_module_level=True)


@pytest.fixture(scope="module")
def osworld_host(task_files: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[HostProcess]:
    """A host with desktops of the image `osworld`."""
    if not needs("osworld"):
        pytest.skip("missing: golden image 'osworld' (osgym image build --flavor osworld)")
    folder = tmp_path_factory.mktemp("osworld")
    with running_host(
        f"osworld-{os.getpid()}",
        image="osworld",
        warm=1,
        max_replicas=2,
        log_dir=folder,
        settings=[f"task_files_dir={task_files}"],
    ) as running:
        yield running


@pytest.fixture(scope="module")
def task_files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The host's folder of task files."""
    return tmp_path_factory.mktemp("files")


def playable(name: str, task_files: Path) -> dict[str, Any]:
    """The task as it is published, or with other files."""
    return stand_in(TASKS[name], task_files) if name in WITH_OTHER_FILES else TASKS[name]


@pytest.fixture(scope="module")
def client(osworld_host: HostProcess) -> Iterator[Client]:
    """Its client."""
    with Client(osworld_host.url) as made:
        yield made


def infeasible(task: dict[str, Any]) -> bool:
    """Whether giving up is right."""
    return bool(task["evaluator"]["func"] == INFEASIBLE)


def earned(episode: Episode, word: str) -> tuple[float | None, str]:
    """The reward after the last word, and what led to it."""
    episode.step(word)
    found = episode.evaluate()
    return found.reward, str(found.details)


@pytest.mark.parametrize("image", ["full", "osworld"])
def test_nothing_is_missing_in_osgym(image: str) -> None:
    """Of all files, whatever else they need: the internet, an account, a program."""
    found = needs(image)
    if not found:
        pytest.skip(f"missing: golden image {image!r}")
    left = {
        name: each.words for name, each in found.items() if each.verdict in {Verdict.MISSING, Verdict.INVALID}
    }
    print(image, dict(Counter(each.verdict.value for each in found.values())))
    assert left == {}


@pytest.mark.parametrize("name", PLAYED)
def test_nothing_earns_nothing(client: Client, name: str, task_files: Path) -> None:
    """Where a task is infeasible, giving up is right."""
    task = playable(name, task_files)
    with client.episode(task, wait_s=WAIT_S) as episode:
        reward, why = earned(episode, "DONE")
    assert reward == 0.0, why
    if infeasible(task):
        with client.episode(task, wait_s=WAIT_S) as episode:
            reward, why = earned(episode, "FAIL")
        assert reward == 1.0, why


@pytest.mark.parametrize("name", [name for name in PLAYED if not infeasible(TASKS[name])])
def test_its_oracle_earns_all(client: Client, name: str, task_files: Path) -> None:
    """The state that `benchmarks/osworld_oracles.toml` brings about."""
    task = playable(name, task_files)
    oracle = ORACLES.get(task["id"])
    if oracle is None:
        pytest.skip(f"missing: an oracle for {name}")
    with client.episode(task, wait_s=WAIT_S) as episode:
        done = episode.execute(["python3", "-c", oracle], timeout_s=ORACLE_S)
        assert done.returncode == 0, done.output
        reward, why = earned(episode, "DONE")
    assert reward == 1.0, why
