"""The host's disk full, its image away: nobody gets a 0 or the blame for it, creates wait, nothing stays."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from benchmarks.chaos.service import data_folder
from tests.support.host_process import HostProcess, running_host

from osgym_host.images.store import Image
from osgym_sdk import Client

pytestmark = pytest.mark.desktop

TASK: dict[str, Any] = {
    "id": "saved",
    "config": [],
    "evaluator": {
        "func": "check_document_text",
        "result": {"type": "vm_file", "path": "/home/user/saved.txt", "dest": "saved.txt"},
        "expected": {"type": "rule", "rules": {"paragraphs": ["saved"]}},
    },
}
SETUP = [
    {"type": "upload_file", "parameters": {"files": [{"path": "/home/user/in.txt", "text": "x" * 4096}]}}
]


@pytest.fixture
def host(small_image: Image, tmp_path: Path) -> Iterator[HostProcess]:
    """A host agent whose data folder has a small disk of its own."""
    with data_folder(1024) as (folder, own):
        if not own:
            pytest.skip("missing: root and mkfs.ext4, for a disk of its own")
        settings = ["disk_reserve_mib=0"]  # what ends the biggest writer before has tests of its own
        name = f"full-{os.getpid()}"
        with running_host(name, data_dir=folder, log_dir=tmp_path, settings=settings) as running:
            yield running


@contextlib.contextmanager
def full(folder: Path) -> Iterator[None]:
    """A disk without a free byte."""
    filler = folder / "filler"
    try:
        with filler.open("wb", buffering=0) as file, contextlib.suppress(OSError):
            while True:
                file.write(bytes(1 << 20))
        with filler.open("ab", buffering=0) as file, contextlib.suppress(OSError):
            while True:
                file.write(bytes(1 << 9))
        yield
    finally:
        filler.unlink(missing_ok=True)


def test_a_task_that_could_not_save_is_ours_to_answer_for(host: HostProcess) -> None:
    """No reward, class infra, the cause named; the next episode is scored as ever."""
    with Client(host.url) as client:
        with client.episode(TASK) as episode:
            episode.step("move(5,5)")
            with full(host.data_dir):
                episode.step("move(6,6)")
                evaluation = episode.evaluate()
            assert evaluation.reward is None and evaluation.failure is not None
            assert evaluation.failure.error_class == "infra"
            assert evaluation.failure.details["cause"] == "disk_full"
        with client.episode(TASK, wait_s=60) as episode:
            assert episode.evaluate().reward == 0.0


def test_an_image_that_is_away_for_a_while_is_no_guest_that_was_tampered_with(host: HostProcess) -> None:
    """The check of the guest agent waits for what it compares with."""
    images = host.data_dir / "images"
    with Client(host.url) as client, client.episode(TASK) as episode:
        episode.step("move(5,5)")
        images.rename(images.with_name("away"))
        back = threading.Timer(2.0, images.with_name("away").rename, (images,))
        back.start()
        try:
            evaluation = episode.evaluate()
        finally:
            back.join()
    assert evaluation.reward == 0.0, evaluation


def test_a_create_waits_until_there_is_room(host: HostProcess) -> None:
    """Neither an internal error nor a failed setup: the episode begins when the disk is free again."""
    with Client(host.url) as client, contextlib.ExitStack() as stack:
        stack.enter_context(full(host.data_dir))
        free = threading.Timer(2.0, stack.close)
        free.start()
        with client.episode({**TASK, "config": SETUP}, wait_s=60) as episode:
            assert episode.evaluate().reward == 0.0
        free.join()
    assert "internal error" not in host.tail()
