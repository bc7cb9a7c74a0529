"""What setup and evaluation need besides the task: limits, folders, and the parts they call."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from osgym_host.tasks.errors import DeadlineExceeded

if TYPE_CHECKING:
    from osgym_host.tasks.downloads import DownloadCache
    from osgym_host.tasks.sandbox import Sandbox

MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class TaskPolicy:
    """What tasks may do on this host.

    Attributes:
        task_files_dir: the only folder that ``upload_file.local_path`` and ``file:`` URLs may read;
            None forbids both.
        allow_private_addresses: let downloads reach addresses that are not public.
        allow_downloads: False serves downloads from the cache only.
        max_file_bytes: largest file fetched from the web or from a guest.
        client_password: what ``{CLIENT_PASSWORD}`` in commands becomes.
    """

    task_files_dir: Path | None = None
    allow_downloads: bool = True
    allow_private_addresses: bool = False
    max_file_bytes: int = 64 * MIB
    download_timeout_s: float = 120
    evaluation_timeout_s: float = 30
    evaluation_memory_bytes: int = 1024 * MIB
    client_password: str = "password"  # noqa: S105 - OSWorld's published default, inside the replica


@dataclass(frozen=True, slots=True)
class TaskContext:
    """One episode's view: made by the episode, used by `run_setup` and `evaluate`.

    Attributes:
        episode_dir: private, empty at the start, removed by the episode's owner.
        screen: width and height of the replica's screen in pixels.
        downloads: shared by all episodes of the host.
        sandbox: runs metrics in confined processes; shared by all episodes of the host.
    """

    episode_dir: Path
    policy: TaskPolicy
    downloads: DownloadCache
    sandbox: Sandbox
    screen: tuple[int, int] = (1920, 1080)
    outputs: dict[str, bytes] = field(default_factory=dict)


def remaining_s(deadline: float, what: str) -> float:
    """Seconds until ``deadline`` (in ``loop.time()``).

    Raises:
        DeadlineExceeded: none are left.
    """
    left = deadline - asyncio.get_running_loop().time()
    if left <= 0:
        raise DeadlineExceeded(f"no time left for {what}", {"what": what})
    return left
